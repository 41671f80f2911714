"""One answer as ``--output`` writes it and ``--compare`` reads it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

from grpo_zero.errors import UserError
from grpo_zero.observe.files import write_rows
from grpo_zero.tasks.row_files import rows_of_file
from grpo_zero.types import FinishReason

Decoding = Literal["greedy", "sampled"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion with its verdict and the problem it belongs to."""

    model: str
    """Where the weights came from."""
    problem: str
    """The problem's key, followed by `` #2`` and so on where the same question is asked again."""
    difficulty: str | None
    """The problem's class, None where the task names none."""
    decoding: Decoding
    """How it was made."""
    sample_index: int
    """Which of the problem's answers it is, 0..K-1; 0 for a greedy one."""
    prompt: str
    """The prompt as text, chat template included."""
    response: str
    """The completion as text."""
    correct: bool
    """Whether the answer is right."""
    reward: float
    """The verdict's reward; NaN (null in the file) is none."""
    parts: Mapping[str, float]
    """The reward by part."""
    notes: Mapping[str, float]
    """What the task reports besides, such as ``strict`` and ``lenient``."""
    reason: str
    """The verdict in a few words."""
    failed: bool
    """Whether the program that judges failed on it."""
    finish_reason: FinishReason
    """``stop``, or ``length`` where the limit cut it."""
    num_tokens: int
    """Length of the completion, the stop token included."""


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """One line an answer; the whole file or nothing."""
    fields = [field.name for field in dataclasses.fields(Answer)]
    write_rows(path, ({name: getattr(answer, name) for name in fields} for answer in answers))


def read_answers(path: Path) -> list[Answer]:
    """What ``write_answers`` wrote. Raises ``UserError`` for a file that is missing, broken or something else."""
    if not path.is_file():
        raise UserError(f"There is no file {path}: give a file that grpo-zero eval --output wrote.")
    return [_answer(place, row) for place, row in rows_of_file(path, ())]


def _answer(place: str, row: Mapping[str, Any]) -> Answer:
    for name, is_right in _FIELDS.items():
        if name not in row or not is_right(row[name]):
            said = "missing" if name not in row else repr(row[name])[:40]
            raise UserError(
                f"{place} is no answer, its {name} is {said}: give a file that grpo-zero eval --output wrote."
            )
    fields = {name: row[name] for name in _FIELDS} | {"reward": _number(row["reward"])}
    for name in ("parts", "notes"):
        fields[name] = {part: _number(value) for part, value in row[name].items()}
    return Answer(**fields)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _is_number(value: object) -> bool:
    """None stands for NaN, which JSON lacks."""
    return value is None or (isinstance(value, Real) and not isinstance(value, bool))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


_FIELDS = {
    "model": _is_text,
    "problem": _is_text,
    "difficulty": lambda value: value is None or _is_text(value),
    "decoding": lambda value: value in get_args(Decoding),
    "sample_index": _is_count,
    "prompt": _is_text,
    "response": _is_text,
    "correct": _is_truth,
    "reward": _is_number,
    "parts": _are_numbers,
    "notes": _are_numbers,
    "reason": _is_text,
    "failed": _is_truth,
    "finish_reason": lambda value: value in get_args(FinishReason),
    "num_tokens": _is_count,
}
"""What each field of a line has to be."""
