"""Rules on lengths: answers that are cut, and answers that grow for nothing."""

from __future__ import annotations

from grpo_zero.doctor.evidence import Evidence, percent
from grpo_zero.doctor.finding import Finding

MOST_CUT = 0.1
MOST_CUT_IN_LOSS = 0.3
"""Where cut answers are in the loss, being cut costs them: more of them may pass for a while."""
EXPLOSION = 1.5


def most_cut(evidence: Evidence) -> float:
    """Share of cut answers that passes for healthy."""
    return MOST_CUT if evidence.config.training.skip_unfinished_episodes else MOST_CUT_IN_LOSS


def truncation(evidence: Evidence) -> Finding | None:
    """Many answers are cut by the limit."""
    cut, length = evidence.series("truncated_share"), evidence.series("length")
    training, algorithm = evidence.config.training, evidence.config.algorithm
    if not cut or cut.tail.mean <= most_cut(evidence):
        return None
    advice = [f"room for them: training.max_gen_len={2 * training.max_gen_len}"]
    if training.skip_unfinished_episodes:
        advice.append(
            "training.skip_unfinished_episodes=false: cut answers then count in the loss, and being cut costs them something"
        )
    if not algorithm.overlong_buffer_share:
        advice.append("a reward that falls near the limit: algorithm.overlong_buffer_share=0.2")
    return Finding(
        "Truncation",
        "problem" if cut.tail.mean > 0.5 else "warning",
        f"{percent(cut.tail.mean)} of the answers are cut after {training.max_gen_len} tokens, and a cut answer is hardly ever "
        "right.",
        (str(cut.tail), str(cut.head), str(length.tail)),
        tuple(advice),
    )


def length_explosion(evidence: Evidence) -> Finding | None:
    """Answers grow by half, and success does not follow."""
    length, success = evidence.series("length"), evidence.series("success")
    if evidence.num_steps < 10 or length.tail.mean < EXPLOSION * length.head.mean or not length.rose(1.0):
        return None
    if success and success.rose(0.05):
        return None
    return Finding(
        "Length explosion",
        "warning",
        f"Answers are {length.tail.mean / length.head.mean:.1f} times as long as at the start, without more success.",
        (
            str(length.head),
            str(length.tail),
            *(str(part.tail) for part in map(evidence.series, ("length_right", "length_wrong")) if part),
            *([str(success.head), str(success.tail)] if success else []),
        ),
        (
            "an average without length bias: algorithm=dr_grpo",
            "a reward that falls near the limit: algorithm.overlong_buffer_share=0.2 with "
            "training.skip_unfinished_episodes=false",
            "look for a part of the reward that length earns",
        ),
    )
