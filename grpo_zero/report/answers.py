"""Which answers a report shows: a few right ones, a few wrong ones, one that was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_zero.doctor.evidence import Row

NUM_RIGHT, NUM_WRONG, NUM_CUT = 2, 2, 1
MAX_CHARS = 1600
"""Of a prompt or an answer; the middle of a longer one is left out."""


@dataclass(frozen=True, slots=True)
class Example:
    """One answer to show."""

    kind: str
    """Right, wrong or cut."""
    row: Row
    """A row of samples.jsonl."""


def choose(samples: Sequence[Row]) -> list[Example]:
    """From the last evaluation if there is one, else from the last step; each of another question where there are enough."""
    evals = [row for row in samples if row["kind"] == "eval"]
    pool = evals or list(samples)
    pool = [row for row in pool if row["step"] == pool[-1]["step"]]
    is_cut = [row["finish_reason"] == "length" for row in pool]
    kinds = [
        ("right", NUM_RIGHT, [row for row in pool if row["correct"]]),
        ("wrong", NUM_WRONG, [row for row, cut in zip(pool, is_cut, strict=True) if not cut and not row["correct"]]),
        ("cut", NUM_CUT, [row for row, cut in zip(pool, is_cut, strict=True) if cut and not row["correct"]]),
    ]
    return [Example(kind, row) for kind, count, rows in kinds for row in _spread(rows, count)]


def shortened(text: str) -> str:
    """Its start and end where it is long."""
    left_out = len(text) - MAX_CHARS
    if left_out <= 0:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n[... {left_out} characters ...]\n{text[-half:]}"


def _spread(rows: Sequence[Row], count: int) -> list[Row]:
    """The first answer to each of ``count`` questions."""
    by_prompt: dict[str, Row] = {}
    for row in rows:
        by_prompt.setdefault(row["prompt"], row)
    return list(by_prompt.values())[:count]
