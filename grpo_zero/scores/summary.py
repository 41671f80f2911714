"""The numbers of an evaluation, as a document: success, pass@k, the task's own rules, length, and all that by difficulty."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from grpo_zero.observe.intervals import mean_interval, success_interval
from grpo_zero.scores.answers import Answer
from grpo_zero.scores.groups import Groups, success_of
from grpo_zero.scores.paired import paired_difference
from grpo_zero.scores.pass_at_k import pass_interval, reported_ks

UNNAMED = "not named"
"""The class of problems without a difficulty, where others have one."""


def summary(groups: Groups) -> dict[str, Any]:
    """``greedy`` and ``sampled``, whichever there are, each as ``scores`` gives it with ``by_difficulty``."""
    found: dict[str, Any] = {"num_problems": len(next(iter(groups.values())))}
    for decoding, answers_PK in groups.items():
        classes = _by_difficulty(answers_PK)
        found[decoding] = scores(answers_PK) | {
            "by_difficulty": {
                name: {"num_problems": len(rows), "success": _interval(success_interval(success_of(rows)))}
                for name, rows in classes.items()
            }
        }
    return found


def scores(answers_PK: Sequence[Sequence[Answer]]) -> dict[str, Any]:
    """The numbers of K answers to each of P problems.

    Returns:
        ``num_samples``; ``success`` with ``mean``, ``low`` and ``high``; ``pass_at``, the same by k, for two answers or more;
        ``notes``, the same by name: answers without the note (those whose verification failed) count as 0, as in success;
        ``reward`` and ``parts``, means over the answers that have them; ``length``, mean tokens; ``truncated_share`` and
        ``failed_share``.
    """
    success_PK = success_of(answers_PK)
    num_samples = success_PK.shape[1]
    rows = [answer for group in answers_PK for answer in group]
    found: dict[str, Any] = {"num_samples": num_samples, "success": _interval(success_interval(success_PK))}
    if num_samples > 1:
        found["pass_at"] = {str(k): _interval(pass_interval(success_PK, k)) for k in reported_ks(num_samples)}
    return found | {
        "notes": {name: _note(answers_PK, name) for name in _names(answer.notes for answer in rows)},
        "reward": _mean(answer.reward for answer in rows),
        "parts": {
            name: _mean(answer.parts[name] for answer in rows if name in answer.parts)
            for name in _names(answer.parts for answer in rows)
        },
        "length": _mean(answer.num_tokens for answer in rows),
        "truncated_share": _mean(answer.finish_reason == "length" for answer in rows),
        "failed_share": _mean(answer.failed for answer in rows),
    }


def differences(groups: Groups, others: Groups) -> dict[str, dict[str, float]]:
    """``Difference`` by decoding, for those that both have. The problems are the same, in the same order."""
    return {
        decoding: paired_difference(success_of(groups[decoding]), success_of(others[decoding]))._asdict()
        for decoding in groups
        if decoding in others
    }


def _by_difficulty(answers_PK: Sequence[Sequence[Answer]]) -> dict[str, list[Sequence[Answer]]]:
    """The problems by class, 3 before 10; nothing where the task names none."""
    classes: dict[str, list[Sequence[Answer]]] = {}
    for group in answers_PK:
        classes.setdefault(group[0].difficulty or UNNAMED, []).append(group)
    if list(classes) == [UNNAMED]:
        return {}
    return dict(sorted(classes.items(), key=lambda item: _natural(item[0])))


def _natural(label: str) -> tuple[bool, list[str | int]]:
    """Texts and numbers by turns, so that the like meet."""
    return label == UNNAMED, [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", label))]


def _note(answers_PK: Sequence[Sequence[Answer]], name: str) -> dict[str, float]:
    values_PK = np.array([[answer.notes.get(name, 0.0) for answer in group] for group in answers_PK])
    if np.all((values_PK >= 0) & (values_PK <= 1)):
        return _interval(mean_interval(values_PK.mean(axis=1), values_PK.shape[1]))
    return {"mean": _mean(values_PK.flat)}  # no share, so it has no such interval


def _interval(interval: Any) -> dict[str, float]:
    return interval._asdict()


def _names(mappings: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _mean(values: Iterable[float]) -> float:
    """Over those that are numbers; NaN where none is."""
    known = [float(value) for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
