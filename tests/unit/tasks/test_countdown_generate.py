"""Generated rows: solvable, in range, the same for the same seed, and never in both parts."""

from pathlib import Path

import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown_data import countdown_rows
from grpo_zero.tasks.countdown_generate import generate_rows, is_held_out
from grpo_zero.tasks.countdown_row import row_key
from grpo_zero.tasks.solve import is_solvable_whole

ROWS = generate_rows(600, seed=1, held_out=False)


def key(row: dict) -> str:
    return row_key(row["nums"], row["target"])


def test_rows_are_solvable_distinct_and_in_range() -> None:
    assert len(ROWS) == len({key(row) for row in ROWS}) == 600
    for row in ROWS:
        assert is_solvable_whole(row["nums"], row["target"])
        assert len(row["nums"]) in (3, 4)
        assert all(1 <= number <= 99 for number in row["nums"])
        assert 10 <= row["target"] <= 100


def test_distribution_is_that_of_the_public_rows(shared_data: Path) -> None:
    public = countdown_rows(shared_data / "countdown" / "tinyzero_first10240.jsonl")

    def figures(rows: list[dict]) -> list[float]:
        return [
            sum(len(row["nums"]) == 3 for row in rows) / len(rows) * 100,
            sum(row["target"] for row in rows) / len(rows),
            sum(sum(row["nums"]) / len(row["nums"]) for row in rows) / len(rows),
            sum(min(row["nums"]) for row in rows) / len(rows),
            sum(max(row["nums"]) for row in rows) / len(rows),
            sum(len(set(row["nums"])) < len(row["nums"]) for row in rows) / len(rows) * 100,
        ]

    # Tolerances of about four standard errors of 600 rows, in the units of the figures above.
    for ours, theirs, tolerance in zip(figures(ROWS), figures(public), (8, 4.5, 3, 3, 4, 4), strict=True):
        assert ours == pytest.approx(theirs, abs=tolerance)


def test_rows_depend_on_the_seed_alone() -> None:
    assert generate_rows(50, seed=1, held_out=False) == ROWS[:50]
    assert generate_rows(50, seed=2, held_out=False) != ROWS[:50]


def test_numbers_stay_as_drawn() -> None:
    assert any(row["nums"] != sorted(row["nums"]) for row in ROWS)


def test_train_and_held_out_never_meet() -> None:
    narrow = {"counts": (2, 3), "numbers": (1, 9), "targets": (5, 20)}
    train = [generate_rows(150, seed=seed, held_out=False, **narrow) for seed in (1, 2)]
    held_out = [generate_rows(60, seed=seed, held_out=True, **narrow) for seed in (1, 3)]
    train_keys = {key(row) for rows in train for row in rows}
    assert not train_keys & {key(row) for rows in held_out for row in rows}
    assert all(is_held_out(row["nums"], row["target"]) for rows in held_out for row in rows)


def test_the_held_out_part_is_fixed_for_good() -> None:
    # Pinned: changing the rule would let earlier training rows into later tests.
    assert [n for n in range(1, 60) if is_held_out([n, 2], n + 2)] == [12, 17, 20, 25, 37, 39, 43]
    assert is_held_out([2, 9], 11) is is_held_out([9, 2], 11)


def test_a_used_up_range_is_reported() -> None:
    with pytest.raises(UserError, match=r"Asked for 100 training .* found only \d+ distinct"):
        generate_rows(100, seed=0, held_out=False, counts=(2, 2), numbers=(1, 4), targets=(1, 8))


@pytest.mark.parametrize(
    "ranges",
    [
        {"counts": (0, 3)},
        {"counts": (4, 3)},
        {"counts": (3, 7)},
        {"numbers": (0, 9)},
        {"targets": (0, 5)},
    ],
)
def test_an_impossible_range_is_refused(ranges: dict) -> None:
    with pytest.raises(UserError, match=f"range {next(iter(ranges))} "):
        generate_rows(1, seed=0, held_out=False, **ranges)
