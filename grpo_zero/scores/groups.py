"""Answers by decoding and problem, and whether two sets of them answer the same problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from grpo_zero.errors import UserError
from grpo_zero.scores.answers import Answer, Decoding

Groups = dict[Decoding, list[list[Answer]]]
"""Answers ``[P][K]`` by decoding, the same problems in the same order under each."""


def grouped(answers: Sequence[Answer], source: str) -> Groups:
    """The answers by decoding and problem.

    Raises:
        UserError: no answer, one that occurs twice, or not equally many to each problem; named by ``source``.
    """
    if not answers:
        raise UserError(f"{source} holds no answers.")
    keys = Counter((answer.decoding, answer.problem, answer.sample_index) for answer in answers)
    (decoding, problem, index), times = keys.most_common(1)[0]
    if times > 1:
        raise UserError(
            f"{source} holds the {decoding} answer {index} to problem {problem[:60]!r} {times} times: give the answers of one "
            "evaluation."
        )
    problems = dict.fromkeys(answer.problem for answer in answers)
    groups: Groups = {}
    for kind in get_args(Decoding):
        by_problem: dict[str, list[Answer]] = {problem: [] for problem in problems}
        for answer in answers:
            if answer.decoding == kind:
                by_problem[answer.problem].append(answer)
        counts = {len(group) for group in by_problem.values()}
        if len(counts) > 1:
            fewest = min(by_problem, key=lambda problem: len(by_problem[problem]))
            raise UserError(
                f"{source} holds {len(by_problem[fewest])} {kind} answers to problem {fewest[:60]!r} and {max(counts)} to "
                "another, but pass@k needs equally many to each: give a whole file."
            )
        if counts != {0}:
            groups[kind] = list(by_problem.values())
    return groups


def problems_of(groups: Groups) -> list[str]:
    """Every problem once, in order."""
    return [group[0].problem for group in next(iter(groups.values()))]


def require_same_problems(problems: Sequence[str], name: str, others: Sequence[str], other_name: str) -> None:
    """Raises ``UserError`` unless both sides answered the same problems, in whatever order."""
    for have, lack, haver, lacker in (
        (problems, others, name, other_name),
        (others, problems, other_name, name),
    ):
        known = set(lack)
        missing = [problem for problem in have if problem not in known]
        if missing:
            raise UserError(
                f"{haver} and {lacker} were not asked the same problems: {lacker} lacks {len(missing)} of the {len(have)}, e.g. "
                f"{missing[0][:60]!r}; to compare them, evaluate both on the same data with the same number of problems."
            )


def in_order_of(problems: Sequence[str], groups: Groups) -> Groups:
    """The same answers with their problems in the given order."""
    places = {problem: place for place, problem in enumerate(problems)}
    return {kind: sorted(rows, key=lambda group: places[group[0].problem]) for kind, rows in groups.items()}


def success_of(answers_PK: Sequence[Sequence[Answer]]) -> NDArray[np.bool_]:
    """Which answers are right, ``[P, K]``."""
    return np.array([[answer.correct for answer in group] for group in answers_PK])
