"""Rules on the reward: what it pays, whether success follows it, whether the program that judges works."""

from __future__ import annotations

from grpo_zero.doctor.evidence import Evidence, Row, Series, number, percent
from grpo_zero.doctor.finding import Finding

MIN_STEPS = 10
"""Below this a trend is mostly noise."""
HARDLY_ANY_SUCCESS = 0.05
NEARLY_ALL = 0.8
RISE = 0.1
"""A reward that rose counts from this part of its mean at the start, or of 1 where that is more."""


def form_without_task(evidence: Evidence) -> Finding | None:
    """Nearly all reward comes from a part that is not the answer."""
    reward, success = evidence.series("reward"), evidence.series("success")
    parts = evidence.parts
    if (
        evidence.num_steps < MIN_STEPS
        or len(parts) < 2
        or not reward
        or not success
        or success.tail.mean >= HARDLY_ANY_SUCCESS
    ):
        return None
    largest = max(parts, key=lambda part: part.tail.mean if part else 0.0)
    if success.rose(0.01) or largest.tail.mean <= 0 or largest.tail.mean < NEARLY_ALL * reward.tail.mean:
        return None
    return Finding(
        "Form without the task",
        "problem",
        f"The policy earns {largest.name} but not the answer: success is {percent(success.tail.mean)} and does not rise.",
        (str(largest.tail), str(reward.tail), str(success.head), str(success.tail)),
        (
            "easier questions, or a stronger model in model.pretrained_model_path",
            "more answers a question: a larger training.batch_size with the same training.num_questions_per_batch",
            "pay the form less beside the answer, in the task's verify",
        ),
    )


def reward_without_success(evidence: Evidence) -> Finding | None:
    """The reward rises and the training problems are not solved more often: something else is paid."""
    reward, success = evidence.series("reward"), evidence.series("success")
    if evidence.num_steps < MIN_STEPS or not _has_risen(reward) or not success or success.rose(0.01):
        return None
    if success.tail.mean < HARDLY_ANY_SUCCESS and form_without_task(evidence):
        return None  # said there, in the words of a run that begins
    rising = max(evidence.parts, key=lambda part: part.gain, default=None)
    cause = [f"{rising.name} rose by {number(rising.gain)} of the {number(reward.gain)}"] if rising else []
    return Finding(
        "Reward without success",
        "problem",
        "The reward rises while success does not: what is paid is not what is wanted, and the policy has found that out.",
        (str(reward.head), str(reward.tail), str(success.head), str(success.tail), *cause),
        (
            "read answers with a high reward in samples.jsonl",
            "tighten the task's verify, and test it with grpo-zero check-task",
            "hold the policy near its start: algorithm.kl_weight=0.02",
        ),
    )


def held_out_is_flat(evidence: Evidence) -> Finding | None:
    """Success rises on the training problems alone."""
    success, held_out = evidence.series("success"), evidence.eval_series("eval/success")
    if evidence.num_steps < MIN_STEPS or len(held_out) < 2 or not success.rose(0.05):
        return None
    first, last = evidence.evals[0], evidence.evals[-1]
    if last["eval/success"] - first["eval/success"] >= success.gain / 4 or last["eval/success"] > first.get(
        "eval/success_high", 1.0
    ):
        return None
    if held_out_fell(evidence):
        return None
    return Finding(
        "Held-out success stays behind",
        "warning",
        "Success rises on the training problems and not on the held-out ones: they are learned by heart, or differ.",
        (str(success.head), str(success.tail), *(_eval_text(row) for row in (first, last))),
        (
            "more training problems: a larger data.train_size, or more rows in data.path",
            "fewer steps: training.max_steps below one pass over the problems",
            "a lower training.learning_rate, or algorithm.kl_weight=0.02",
            "tighter intervals: a larger data.test_size or evaluation.samples_per_problem",
        ),
    )


def held_out_fell(evidence: Evidence) -> Finding | None:
    """Held-out success was better in an earlier evaluation, beyond both intervals."""
    known = [row for row in evidence.evals if None not in (row.get("eval/success_low"), row.get("eval/success_high"))]
    if len(known) < 2:
        return None
    best, last = max(known, key=lambda row: row["eval/success"]), known[-1]
    if last["eval/success_high"] >= best["eval/success_low"]:
        return None
    rate = evidence.config.training.learning_rate
    return Finding(
        "Held-out success fell",
        "problem",
        f"Held-out success fell to {percent(last['eval/success'])}, from {percent(best['eval/success'])} at step {best['step']}.",
        (_eval_text(best), _eval_text(last)),
        (
            "take the checkpoint with the best held-out success: it is always kept",
            f"a lower learning rate: training.learning_rate={rate / 3:.0e}",
            "hold the policy near its start: algorithm.kl_weight=0.02",
        ),
    )


def reward_collapse(evidence: Evidence) -> Finding | None:
    """The reward was much better before."""
    reward = evidence.series("reward")
    if evidence.num_steps < MIN_STEPS or not reward:
        return None
    drop = reward.best.mean - reward.tail.mean
    if drop < 0.3 * abs(reward.best.mean) or drop < 4 * reward.noise:
        return None
    rate = evidence.config.training.learning_rate
    return Finding(
        "Reward collapse",
        "problem",
        f"The reward fell from {number(reward.best.mean)} to {number(reward.tail.mean)} and did not come back.",
        (str(reward.best), str(reward.tail)),
        (
            f"a lower learning rate: training.learning_rate={rate / 3:.0e}, with training.warmup_steps=10",
            "start again from a checkpoint before the fall: model.pretrained_model_path=RUN/checkpoints/STEP/model",
            "hold the policy near its start: algorithm.kl_weight=0.02",
        ),
    )


def failed_verifiers(evidence: Evidence) -> Finding | None:
    """The program that judges raised, ran out of time or returned no number."""
    failed = evidence.series("failed_share")
    if not failed:
        return None
    share = sum(failed.values) / evidence.num_steps
    reasons = [row["reason"] for row in evidence.samples if row.get("reward") is None and row.get("reason")]
    return Finding(
        "Failed verifiers",
        "problem" if share > 0.1 else "warning",
        f"The task's verify failed on {percent(share)} of the answers: they get no reward and teach nothing.",
        (
            f"failed_share up to {number(max(failed.values))}, in {len(failed)} of {evidence.num_steps} steps, the last at "
            f"step {failed.steps[-1]}",
            *(f"the last one recorded: {reason}" for reason in reasons[-1:]),
        ),
        (
            "grpo-zero check-task shows on which answers it fails",
            "a longer limit where it ran out of time: data.verify_timeout_s",
            "data.verify_workers=4 where verifiers wait for each other",
        ),
    )


def _has_risen(reward: Series) -> bool:
    return bool(reward) and reward.rose(RISE * max(abs(reward.head.mean), 0.1))


def _eval_text(row: Row) -> str:
    low, high = row.get("eval/success_low"), row.get("eval/success_high")
    interval = f", 95 %: {percent(low)} to {percent(high)}" if low is not None and high is not None else ""
    return f"eval/success {percent(row['eval/success'])} (step {row['step']}{interval})"
