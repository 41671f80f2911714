"""What TRL's numbers are called here: the metric catalogue read backwards, with the few that mean something else there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from grpo_zero.observe.catalogue import CATALOGUE, find_metric

EVAL = "eval_"
"""What TRL puts before the names of an evaluation."""
NAMES = {metric.trl: metric.name for metric in CATALOGUE.values() if metric.trl}
"""TRL's names to ours; a name with ``{f}`` stands for one a reward function."""
CONVERTED = {
    "reward/<part>": "times the function's weight",
    "eval/reward/<part>": "times the function's weight",
    "num_tokens": "`completions/mean_length` times the answers of one rollout; TRL's own, a sum since the start with prompts, "
    "is `trl/num_tokens`",
    "step_s": "as TRL measures it, without the optimizer's step",
    "entropy": "over all tokens in the loss",
    "grad_norm": "of the last update since the row before",
    "learning_rate": "of the last update since the row before",
    "loss": "of TRL's `loss_type`",
}
"""What is done to a value, or has to be known of it, by our name."""
FROM_REWARDS = re.compile(r"success|failed_share|note/.+")
"""What our reward functions log, under our own names."""
_PARTS = {
    re.compile(re.escape(theirs).replace(r"\{f\}", "(?P<part>.+)")): ours
    for theirs, ours in NAMES.items()
    if "{f}" in theirs
}


def our_name(theirs: str) -> str:
    """Our name of a number that TRL logs; ``trl/<its name>`` where we have none."""
    if theirs in NAMES and theirs != "num_tokens":
        return NAMES[theirs]
    for pattern, ours in _PARTS.items():
        if match := pattern.fullmatch(theirs):
            return ours.replace("<part>", match["part"])
    logged = theirs.removeprefix(EVAL)
    name = f"eval/{logged}" if theirs.startswith(EVAL) else logged
    return name if FROM_REWARDS.fullmatch(logged) and find_metric(name) else f"trl/{theirs}"


def our_metrics(
    logs: Mapping[str, Any], *, reward_weights: Sequence[float] | None, answers_per_rollout: int
) -> dict[str, float]:
    """The numbers of one of TRL's logs, under our names and in our units; what has no value is left out.

    Args:
        logs: by TRL's names.
        reward_weights: one for each reward function, None = 1 each; functions are logged in their order.
        answers_per_rollout: completions that TRL samples at a time (``generation_batch_size``).
    """
    numbers = {name: float(value) for name, value in logs.items() if isinstance(value, Real)}
    functions = [name for name in logs if any(pattern.fullmatch(name) for pattern in _PARTS)]
    # Not strict: a log without a new rollout has no rewards.
    weights = dict(zip(functions, reward_weights or [1.0] * len(functions), strict=False))
    metrics = {our_name(name): value * weights.get(name, 1.0) for name, value in numbers.items()}
    if "completions/mean_length" in numbers:
        metrics["num_tokens"] = round(numbers["completions/mean_length"] * answers_per_rollout)
    if not metrics.get("failed_share"):
        metrics.pop("failed_share", None)  # absent when none failed, as in our own runs
    return metrics


def markdown_table() -> str:
    """For docs/trl.md."""
    lines = ["| TRL | here | |", "|---|---|---|"]
    lines += [f"| `{theirs}` | `{ours}` | {CONVERTED.get(ours, '')} |" for theirs, ours in NAMES.items()]
    return "\n".join(lines)
