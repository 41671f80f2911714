"""Countdown rows made here, with the distribution of the public 3-to-4-number data set.

The method is that of the generator of stream-of-search (Gandhi et al., 2024), whose defaults match
that data set in every number we compared: the count of numbers and the target are uniform; the
numbers are uniform and independent, and drawn again, the target kept, until it can be made in whole
steps. We depart from it in two ways:

1. Rows are distinct by content (target and sorted numbers), not only as ordered rows.
2. What is held out is decided by content: a row is held out if and only if the SHA-256 of its key
   is divisible by ten, about one row in ten. So rows for training and rows for testing can never be
   the same task, whatever the seeds, sizes and ranges they were made with.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown_row import MAX_NUMBERS, row_key
from grpo_zero.tasks.solve import is_solvable_whole

HELD_OUT_ONE_IN = 10
_DRAWS_PER_TARGET = 1_000
"""Draws of numbers after which a target is given up; some have no solution in a narrow range."""
_DRAWS_WITHOUT_NEW_ROW = 20_000
"""Draws in a row that bring nothing new after which the range counts as used up."""


def is_held_out(nums: list[int], target: int) -> bool:
    """Whether the task belongs to the held-out part; depends on its content alone."""
    digest = hashlib.sha256(row_key(nums, target).encode()).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


def generate_rows(
    num_rows: int,
    *,
    seed: int,
    held_out: bool,
    counts: tuple[int, int] = (3, 4),
    numbers: tuple[int, int] = (1, 99),
    targets: tuple[int, int] = (10, 100),
) -> list[dict[str, Any]]:
    """``num_rows`` distinct, solvable rows ``{"nums": [...], "target": n}``, the same for equal
    arguments.

    ``counts`` (how many numbers), ``numbers`` and ``targets`` are ranges, both ends included.
    ``nums`` stand in the order in which they were drawn. All rows are held out, or none, as
    ``held_out`` says. Raises ``UserError`` for an impossible range, or when it holds too few
    distinct rows.
    """
    _check_range("counts", counts, 1, MAX_NUMBERS)
    _check_range("numbers", numbers, 1, 10**9)
    _check_range("targets", targets, 1, 10**9)
    draw = random.Random(f"countdown {seed} {'held out' if held_out else 'train'}")
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    num_fruitless = 0
    while len(rows) < num_rows:
        count, target = draw.randint(*counts), draw.randint(*targets)
        for _ in range(_DRAWS_PER_TARGET):
            nums = [draw.randint(*numbers) for _ in range(count)]
            num_fruitless += 1
            if is_solvable_whole(nums, target):
                break
        else:
            nums = []
        key = row_key(nums, target)
        if nums and key not in seen and is_held_out(nums, target) == held_out:
            seen.add(key)
            rows.append({"nums": nums, "target": target})
            num_fruitless = 0
        elif num_fruitless > _DRAWS_WITHOUT_NEW_ROW:
            raise UserError(
                f"Asked for {num_rows} {'held-out' if held_out else 'training'} Countdown rows, "
                f"but found only {len(rows)} distinct solvable ones with counts {counts}, numbers "
                f"{numbers} and targets {targets}; ask for fewer rows or widen a range."
            )
    return rows


def _check_range(name: str, given: tuple[int, int], lowest: int, highest: int) -> None:
    low, high = given
    if not lowest <= low <= high <= highest:
        raise UserError(
            f"The range {name} is ({low}, {high}) for generated Countdown rows; expected a lower "
            f"and an upper end, both within {lowest} to {highest}."
        )
