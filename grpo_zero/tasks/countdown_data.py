"""Where Countdown rows come from: a downloaded data set, a JSON-lines file, or the generator."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown_generate import generate_rows
from grpo_zero.tasks.countdown_row import read_row, row_key
from grpo_zero.tasks.row_files import ENDINGS, Row, rows_of_file

COLUMNS = ("nums", "target")
_REMEDY = (
    "Give a folder with the data set's .parquet files, a .parquet, .jsonl or .jsonl.gz file, or "
    "'generate' to make rows without any download (`uv run grpo-zero train` does)."
)


def load_countdown(
    path: str | Path,
    *,
    test_size: int,
    train_size: int | None = None,
    seed: int = 0,
    **generator: Any,
) -> tuple[list[Row], list[Row], dict[str, int]]:
    """The rows to train on, the rows to test on, and facts: how many of each, how many were
    dropped.

    With ``path`` "generate" they are made, from ``seed`` and the ranges ``counts``, ``numbers`` and
    ``targets`` in ``generator``; ``train_size`` is needed then. Otherwise they are read; the last
    ``test_size`` rows are the test rows, and at most the first ``train_size`` others are kept.
    Raises ``UserError`` when there are too few rows or they cannot be read.
    """
    if test_size < 0 or (train_size is not None and train_size < 1):
        raise UserError(
            f"The Countdown sizes are train_size={train_size} and test_size={test_size}; expected "
            "at least 1 row to train on and 0 or more to test on."
        )
    if str(path) == "generate":
        if train_size is None:
            raise UserError("Generated Countdown rows need a train size: say how many to make.")
        train = generate_rows(train_size, seed=seed, held_out=False, **generator)
        test = generate_rows(test_size, seed=seed, held_out=True, **generator)
        num_dropped = 0
    else:
        train, test, num_dropped = split_rows(countdown_rows(path), test_size)
        if train_size is not None and train_size > len(train):
            raise UserError(
                f"A train size of {train_size} was asked for, but {path} has only {len(train)} "
                f"rows after {test_size} test rows and {num_dropped} rows with the same tasks are "
                "set aside."
            )
        train = train[:train_size]
    return train, test, {"train": len(train), "test": len(test), "dropped": num_dropped}


def split_rows(rows: list[Row], test_size: int) -> tuple[list[Row], list[Row], int]:
    """Training rows, test rows (the last ``test_size``), and how many rows were dropped between.

    Dropped are the other rows that hold a task of a test row, the numbers perhaps in another order.
    Raises ``UserError`` unless ``test_size`` leaves at least one row to train on.
    """
    if not 0 <= test_size < len(rows):
        raise UserError(
            f"The test size is {test_size} for {len(rows)} Countdown rows; it must be 0 or more, "
            "and smaller than the number of rows."
        )
    first_test = len(rows) - test_size
    test = rows[first_test:]
    test_keys = {row_key(row["nums"], row["target"]) for row in test}
    train = [row for row in rows[:first_test] if row_key(row["nums"], row["target"]) not in test_keys]
    if not train:
        raise UserError(
            f"All {first_test} Countdown training rows occur among the {test_size} test rows; "
            "choose a smaller test size or another data set."
        )
    return train, test, first_test - len(train)


def countdown_rows(path: str | Path) -> list[Row]:
    """All rows of a parquet folder or file, or of a .jsonl or .jsonl.gz file, in order, all
    columns.

    Solvability is not checked here, since it takes a while for a large file; ``problem`` does it.
    Raises ``UserError`` naming the file, and the line or row, for whatever cannot be used.
    """
    path = Path(path)
    placed: Iterable[tuple[str, Row]]
    if not path.exists():
        raise UserError(f"The Countdown data {path} does not exist. {_REMEDY}")
    if path.is_dir():
        files = sorted(path.rglob("*.parquet"))
        if not files:
            raise UserError(f"The folder {path} has no .parquet file in or below it. {_REMEDY}")
        placed = chain.from_iterable(rows_of_file(file, COLUMNS) for file in files)
    elif path.name.endswith(ENDINGS):
        placed = rows_of_file(path, COLUMNS)
    else:
        raise UserError(f"The Countdown data {path} has a file type that is not read. {_REMEDY}")
    rows = []
    for place, row in placed:
        try:
            read_row(row)
        except UserError as error:
            raise UserError(f"{place}: {error}") from None
        rows.append(row)
    if not rows:
        raise UserError(f"The Countdown data {path} holds no rows. {_REMEDY}")
    return rows
