"""Rules on the machine: memory that climbs or passes the plan, a verifier that takes the time."""

from __future__ import annotations

import itertools

from grpo_zero.doctor.evidence import Evidence, percent
from grpo_zero.doctor.finding import Finding

MIN_STEPS = 20
CLIMB = 1.15
"""A high-water mark rises now and then as longer answers come; by this factor in the second half of a run it is more."""
OVER_PLAN = 1.1
SLOW_VERIFY = 0.4


def memory_climbing(evidence: Evidence) -> Finding | None:
    """The peak keeps rising when it should have settled."""
    found = []
    for name in ("peak_gib", "peak_host_gib"):
        peak = evidence.series(name)
        if len(peak) < MIN_STEPS:
            continue
        later = peak.values[len(peak) // 2 :]
        num_rises = sum(after > 1.005 * before for before, after in itertools.pairwise(later))
        is_rising_still = later[-1] > 1.02 * later[len(later) // 2]
        if later[-1] > CLIMB * later[0] and num_rises >= 3 and is_rising_still:
            middle = peak.steps[len(peak) // 2]
            found.append(f"{name} {later[0]:.2f} GiB (step {middle}), {later[-1]:.2f} GiB (step {peak.steps[-1]})")
    if not found:
        return None
    return Finding(
        "Memory climbing",
        "warning",
        "The peak of memory still rises late in the run: longer answers need more, or something is kept.",
        tuple(found),
        (
            "compare with length: where answers grow, so does memory",
            "a lower training.micro_batch_tokens (update) or training.num_slots (sampling)",
            "a task of your own that collects answers: data.verify_timeout_s=30 runs it in processes of its own",
        ),
    )


def out_of_memory(evidence: Evidence) -> Finding | None:
    """Memory ran out, and the run went on with less."""
    shortages = evidence.series("out_of_memory")
    if not shortages:
        return None
    training = evidence.config.training
    return Finding(
        "Out of memory",
        "note",
        "Memory ran out and work was done again with fewer slots or smaller micro-batches, which the run has kept since.",
        (f"{sum(shortages.values):.0f} times, the last in step {shortages.steps[-1]}",),
        (
            f"nothing in this run: its config.yaml has training.micro_batch_tokens={training.micro_batch_tokens} by now",
            "training.memory=auto in the next run sizes it beforehand",
        ),
    )


def over_plan(evidence: Evidence) -> Finding | None:
    """More memory was used than was planned."""
    planned, peak = evidence.plan.get("planned_gib"), evidence.series("peak_gib")
    if not planned or not peak or peak.values[-1] <= OVER_PLAN * planned:
        return None
    return Finding(
        "More memory than planned",
        "warning",
        f"The run took {percent(peak.values[-1] / planned - 1)} more memory than its plan said.",
        (f"planned {planned:.2f} GiB", f"peak_gib {peak.values[-1]:.2f} GiB (step {peak.steps[-1]})"),
        (
            f"leave room: training.memory={planned * planned / peak.values[-1]:.1f} in a new run",
            "a lower training.micro_batch_tokens or training.num_slots",
        ),
    )


def slow_verifier(evidence: Evidence) -> Finding | None:
    """Judging takes a large part of a step."""
    verify, step = evidence.series("verify_s"), evidence.series("step_s")
    if not verify or not step or verify.tail.mean <= SLOW_VERIFY * step.tail.mean:
        return None
    return Finding(
        "Slow verifier",
        "warning",
        f"The task's verify takes {percent(verify.tail.mean / step.tail.mean)} of each step.",
        (str(verify.tail), str(step.tail)),
        (
            "data.verify_timeout_s=30 with data.verify_workers=4 judges in several processes at once",
            "look for what verify does anew for each answer: compiling, loading, starting a process",
        ),
    )
