"""Rules on updates: steps too large or too small, a policy that stops exploring, sampler and trainer that disagree."""

from __future__ import annotations

import statistics

from grpo_zero.doctor.evidence import Evidence, Series, number, percent
from grpo_zero.doctor.finding import Finding
from grpo_zero.observe.catalogue import FLOAT32_LOGPROB_GAP

MIN_STEPS = 10
MOST_CLIPPED = 0.2
"""Share of tokens; the catalogue's healthy range of the clip fractions."""
MOST_KL = 0.01
SPIKE = 10.0
"""A gradient so many times the median is no noise of the step's questions."""
RARE = 0.02
"""Share of steps; so few spikes that lie behind were survived."""
STUCK_STEPS = 20


def entropy_collapse(evidence: Evidence) -> Finding | None:
    """The policy has become certain before it is right: answers to a question no longer differ."""
    entropy, success = evidence.series("entropy"), evidence.series("success")
    if evidence.num_steps < MIN_STEPS or not entropy or (success and success.tail.mean > 0.9):
        return None
    if entropy.tail.mean >= 0.1 * entropy.head.mean and entropy.tail.mean >= 0.005:
        return None
    if entropy.head.mean < 0.005 and not entropy.moved(0.001):
        severity, what = "warning", "has been near 0 from the start"
    else:
        severity, what = "problem", f"fell to {percent(entropy.tail.mean / entropy.head.mean)} of what it was"
    return Finding(
        "Entropy collapse",
        "problem" if severity == "problem" else "warning",
        f"The policy's entropy {what}: it gives the same answer again and again, and has little left to learn from.",
        (str(entropy.head), str(entropy.tail), *([str(success.tail)] if success else [])),
        (
            "room for unlikely tokens to grow, with several updates per rollout: algorithm.clip_high=0.28",
            f"a lower learning rate: {_rate(evidence, 1 / 3)}",
            "hold the policy near its start: algorithm.kl_weight=0.02",
            "a higher training.temperature, where the model starts out certain",
        ),
    )


def learning_rate_too_high(evidence: Evidence) -> Finding | None:
    """The policy moves too far from the one that sampled, or becomes random."""
    kl, entropy = evidence.series("kl_old"), evidence.series("entropy")
    clipped = max((evidence.series(f"clip_fraction_{side}") for side in ("low", "high")), key=_tail_mean)
    signs = []
    if kl and kl.tail.mean > MOST_KL:
        signs.append(str(kl.tail))
    if clipped and clipped.tail.mean > MOST_CLIPPED:
        signs.append(str(clipped.tail))
    if evidence.num_steps >= MIN_STEPS and entropy and entropy.tail.mean > 2 * entropy.head.mean and entropy.moved(0.5):
        signs += [str(entropy.head), str(entropy.tail)]
    if not signs:
        return None
    many = evidence.config.training.updates_per_rollout > 1
    return Finding(
        "Learning rate too high",
        "warning",
        "Each step moves the policy too far from the answers that it learns from.",
        tuple(signs),
        (
            f"a lower learning rate: {_rate(evidence, 1 / 3)}",
            *(["fewer updates on the same answers: a lower training.updates_per_rollout"] if many else []),
            "training.warmup_steps=10, and a lower training.max_grad_norm",
        ),
    )


def learning_rate_too_low(evidence: Evidence) -> Finding | None:
    """There was enough to learn from, and nothing moved."""
    names = ("reward", "success", "entropy", "length")
    reward, success, entropy, length = (evidence.series(name) for name in names)
    dead = evidence.series("zero_variance_share")
    if (
        evidence.num_steps < STUCK_STEPS
        or not dead
        or dead.tail.mean > 0.5
        or not (reward and success and entropy and length)
    ):
        return None
    if success.tail.mean > 0.9:
        return None
    still = [
        not reward.moved(0.02 * abs(reward.head.mean)),
        not success.moved(0.01),
        not entropy.moved(0.05 * entropy.head.mean),
        not length.moved(0.05 * length.head.mean),
    ]
    if not all(still):
        return None
    return Finding(
        "Learning rate too low",
        "warning",
        f"In {evidence.num_steps} steps neither reward nor success, entropy or length has moved, though groups have differences "
        "to learn from.",
        (
            str(reward.head),
            str(reward.tail),
            str(entropy.head),
            str(entropy.tail),
            str(evidence.series("grad_norm").tail),
        ),
        (
            f"a higher learning rate: {_rate(evidence, 3)}",
            "more questions a step, for less noise: training.num_questions_per_batch with training.batch_size",
            "more steps: training.max_steps",
        ),
    )


def gradient_spikes(evidence: Evidence) -> Finding | None:
    """Some gradients are far larger than the others."""
    norms = evidence.series("grad_norm")
    positive = [value for value in norms.values if value > 0]
    if len(positive) < MIN_STEPS:
        return None
    median = statistics.median(positive)
    spikes = [(step, value) for step, value in zip(norms.steps, norms.values, strict=True) if value > SPIKE * median]
    if not spikes:
        return None
    limit = evidence.config.training.max_grad_norm
    is_past = len(spikes) <= RARE * len(norms) and spikes[-1][0] not in norms.tail.steps
    return Finding(
        "Gradient spikes",
        "note" if is_past else "warning",
        f"{len(spikes)} of {len(norms)} gradients are more than {SPIKE:.0f} times the median: runs often diverge after such.",
        (
            *(f"grad_norm {number(value)} (step {step})" for step, value in spikes[-3:]),
            f"median {number(median)}; scaled down to training.max_grad_norm={limit:g}",
        ),
        (
            *([f"scale them down: training.max_grad_norm={_one_digit(median)}"] if limit > 2 * median else []),
            f"a lower learning rate: {_rate(evidence, 1 / 3)}",
            "read the answers of those steps in samples.jsonl",
        ),
    )


def non_finite(evidence: Evidence) -> Finding | None:
    """A loss or gradient that is no number: metrics.jsonl has null for it. Runs of before updates were skipped took them."""
    bad = [
        (name, row["step"])
        for row in evidence.train
        for name in ("loss", "grad_norm", "entropy")
        if row.get(name, 0) is None
    ]
    skipped = [row["step"] for row in evidence.train if row.get("skipped_updates")]
    if not bad and not skipped:
        return None
    is_taken = not {step for _, step in bad} <= set(skipped)
    diagnosis = (
        "A loss, gradient or entropy is no finite number, and the weights after that step are not to be trusted."
    )
    if not is_taken:
        diagnosis = (
            "A loss or gradient is no finite number; those updates were skipped, the weights are as before them."
        )
    return Finding(
        "Non-finite numbers",
        "problem" if is_taken else "warning",
        diagnosis,
        (
            *(f"{name} is no number (step {step})" for name, step in bad[:3]),
            *(
                [f"updates skipped in {len(skipped)} of {len(evidence.train)} steps, the last {skipped[-1]}"]
                if skipped
                else []
            ),
        ),
        (
            "go on from a checkpoint before that step, with a lower training.learning_rate",
            "model.dtype=float32, to see whether it is a matter of precision",
        ),
    )


def sampler_and_trainer_disagree(evidence: Evidence) -> Finding | None:
    """The log-probs at sampling and in training differ by more than rounding."""
    gap = evidence.series("logprob_gap")
    is_float32 = _is_float32(evidence)
    limit = FLOAT32_LOGPROB_GAP if is_float32 else 0.05
    if not gap or gap.tail.mean <= limit:
        return None
    return Finding(
        "Sampler and trainer disagree",
        "problem",
        f"A token's log-prob at sampling and in training differ by {number(gap.tail.mean)} on average, far more than rounding in "
        f"{'float32' if is_float32 else 'bfloat16'} explains.",
        (str(gap.head), str(gap.tail), f"worry above {limit:g}"),
        (
            "training.decode=dynamic and training.decode_kernels=plain, to see whether a fast path is wrong",
            "model.dtype=float32, to see whether it is rounding",
            "grpo-zero verify RUN, and an issue with its output: this should not happen",
        ),
    )


def loss_is_zero(evidence: Evidence) -> Finding | None:
    """Not an illness: said to those who look at the loss."""
    loss, norms = evidence.series("loss"), evidence.series("grad_norm")
    if len(loss) < MIN_STEPS or max(map(abs, loss.values)) >= 5e-4 or not norms or norms.tail.mean <= 0:
        return None
    return Finding(
        "A loss of 0 is normal",
        "note",
        "The loss is 0 to three digits, as it must be: advantages sum to 0 in each group; the gradient does not.",
        (f"loss between {number(min(loss.values))} and {number(max(loss.values))}", str(norms.tail)),
        ("look at reward, eval/success and grad_norm instead",),
    )


def _rate(evidence: Evidence, factor: float) -> str:
    return f"training.learning_rate={_one_digit(evidence.config.training.learning_rate * factor)}"


def _one_digit(value: float) -> str:
    return f"{value:.0e}" if value < 1e-2 else f"{value:.1g}"


def _tail_mean(series: Series) -> float:
    return series.tail.mean if series else -1.0


def _is_float32(evidence: Evidence) -> bool:
    model = evidence.config.model
    device = str(evidence.summary.get("machine", {}).get("device", model.device))
    return model.dtype == "float32" or (model.dtype == "auto" and device in ("cpu", "mps"))
