"""Rules on groups: whether the answers to a question differ at all, for a group of equals teaches nothing."""

from __future__ import annotations

from grpo_zero.doctor.evidence import Evidence, percent
from grpo_zero.doctor.finding import Finding

MOST_DEAD = 0.5
"""Share of groups without a difference; above it more than half of the sampling is for nothing."""
NEARLY_ALL = 0.9
MOST_WASTED = 0.3
"""Share of the whole run's sampling time; a run passes through easy and hard phases, so less than for a moment."""


def too_hard(evidence: Evidence) -> Finding | None:
    """All answers to most questions are wrong, and equally so."""
    wrong, success = evidence.series("zero_variance_all_wrong_share"), evidence.series("success")
    if not wrong or wrong.tail.mean <= MOST_DEAD:
        return None
    training = evidence.config.training
    return Finding(
        "Too hard",
        "problem" if wrong.tail.mean > NEARLY_ALL else "warning",
        f"{percent(wrong.tail.mean)} of the questions get only wrong answers of equal reward, so nothing is learned from them.",
        (str(wrong.tail), str(wrong.head), str(success.tail)),
        (
            f"more answers a question, so that one of them is right: training.batch_size={2 * training.batch_size} with the "
            "same training.num_questions_per_batch",
            "easier questions" + (", as with a smaller data.numbers_per_problem" if _is_countdown(evidence) else ""),
            "a warm start on solved examples: grpo-zero sft",
            "a reward with parts, so that wrong answers can differ",
        ),
    )


def too_easy(evidence: Evidence) -> Finding | None:
    """All answers to most questions are right."""
    right, success = evidence.series("zero_variance_all_right_share"), evidence.series("success")
    if not right or right.tail.mean <= MOST_DEAD:
        return None
    return Finding(
        "Too easy",
        "warning",
        f"{percent(right.tail.mean)} of the questions get only right answers: the policy has outgrown its problems.",
        (str(right.tail), str(right.head), str(success.tail)),
        (
            "harder questions" + (", as with a larger data.numbers_per_problem" if _is_countdown(evidence) else ""),
            "algorithm.dynamic_sampling_rounds=3 draws questions until there are enough that teach",
            "stop here, and measure with grpo-zero eval",
        ),
    )


def dead_groups(evidence: Evidence) -> Finding | None:
    """Most groups teach nothing, some being all right and some all wrong, or unequal answers being paid alike."""
    dead = evidence.series("zero_variance_share")
    if not dead or dead.tail.mean <= MOST_DEAD or too_hard(evidence) or too_easy(evidence):
        return None
    right, wrong = (evidence.series(f"zero_variance_all_{kind}_share") for kind in ("right", "wrong"))
    training = evidence.config.training
    advice = [
        f"more answers a question: training.batch_size={2 * training.batch_size} with the same "
        "training.num_questions_per_batch",
        "algorithm.dynamic_sampling_rounds=3 draws questions until there are enough that teach",
    ]
    if evidence.config.algorithm.dynamic_sampling_rounds:
        advice.pop()
    if right.tail.mean + wrong.tail.mean < dead.tail.mean / 2:
        advice.insert(0, "a reward that tells right from wrong: many groups have both, and are paid alike")
    return Finding(
        "Groups without a difference",
        "warning",
        f"In {percent(dead.tail.mean)} of the groups all answers get the same reward, so nothing is learned from them.",
        (str(dead.tail), str(right.tail), str(wrong.tail)),
        tuple(advice),
    )


def wasted_rollouts(evidence: Evidence) -> Finding | None:
    """Sampling time spent on groups that teach nothing, over the whole run."""
    rows = [row for row in evidence.train if None not in (row.get("zero_variance_share"), row.get("sample_s"))]
    total_s = sum(row["sample_s"] for row in rows)
    wasted_s = sum(row["zero_variance_share"] * row["sample_s"] for row in rows)
    if not total_s or wasted_s / total_s <= MOST_WASTED:
        return None
    return Finding(
        "Wasted rollouts",
        "warning" if wasted_s / total_s > MOST_DEAD else "note",
        f"{percent(wasted_s / total_s)} of the sampling went into groups whose answers all got the same reward.",
        (
            f"about {wasted_s:,.0f} s of {total_s:,.0f} s of sampling (steps {rows[0]['step']} to {rows[-1]['step']})",
            str(evidence.series("zero_variance_share").tail),
        ),
        (
            "questions that the policy gets right now and then: neither always nor never",
            "fewer questions a step with more answers each: a lower training.num_questions_per_batch at the same "
            "training.batch_size",
        ),
    )


def _is_countdown(evidence: Evidence) -> bool:
    return evidence.config.data.task == "countdown" and evidence.config.data.path == "generate"
