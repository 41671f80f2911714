"""One row of Countdown data: its shape, its checks, its identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_zero.errors import UserError, shown
from grpo_zero.tasks.expressions import MAX_DIGITS

MAX_NUMBERS = 6
"""Most numbers in one row."""


def read_row(row: Mapping[str, Any]) -> tuple[list[int], int]:
    """The ``nums`` (as they stand in the row) and the ``target`` of a row.

    Raises ``UserError`` naming the culprit unless there are 1 to ``MAX_NUMBERS`` numbers, and they
    and the target are positive integers of at most ``MAX_DIGITS`` digits.
    """
    for column in ("nums", "target"):
        if column not in row:
            raise UserError(
                f"The Countdown row {shown(dict(row))} has no {column!r}; a row needs 'nums', a list of "
                "integers, and 'target', an integer."
            )
    nums, target = row["nums"], row["target"]
    if not isinstance(nums, list | tuple) or not 1 <= len(nums) <= MAX_NUMBERS:
        raise UserError(
            f"'nums' is {shown(nums)} in the Countdown row {shown(dict(row))}; expected a list of 1 to "
            f"{MAX_NUMBERS} integers, e.g. [3, 7, 25]."
        )
    for value in (*nums, target):
        # bool is a kind of int in Python, and no number here.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 10**MAX_DIGITS:
            raise UserError(
                f"{shown(value)} in the Countdown row {shown(dict(row))} is not a positive integer of at "
                f"most {MAX_DIGITS} digits; correct or remove the row."
            )
    return list(nums), target


def row_key(nums: Sequence[int], target: int) -> str:
    """Identity by content: rows with the same target and the same numbers in any order are one."""
    return f"{target}:{sorted(nums)}"
