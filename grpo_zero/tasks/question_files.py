"""Rows of questions from files: one JSON-lines file, or a folder with ``train.jsonl`` and ``test.jsonl``; parquet likewise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpo_zero.errors import UserError
from grpo_zero.tasks.row_files import ENDINGS, Row, rows_of_file


def read_questions(
    path: str | Path, columns: Sequence[str], test_size: int
) -> tuple[list[Row], list[Row], dict[str, int]]:
    """Rows to train on, held-out rows, and facts: how many of each, how many training rows were dropped as held-out ones.

    Args:
        path: a folder with files named train and test, of which the first ``test_size`` test rows are held out; or one file, of
            which the last ``test_size`` rows are.
        columns: what every row must have.

    Raises:
        UserError: nothing there, an unreadable line, a missing column, or too few rows.
    """
    path = Path(path)
    if path.is_dir():
        train, test = (_read(_file(path, name), columns) for name in ("train", "test"))
        if test_size > len(test):
            raise UserError(
                f"data.test_size is {test_size}, but {path} has {len(test)} test rows: give at most that many."
            )
        test = test[:test_size]
    elif path.is_file() and path.name.endswith(ENDINGS):
        rows = _read(path, columns)
        if test_size >= len(rows):
            raise UserError(f"data.test_size is {test_size}, but {path} has {len(rows)} rows: leave some to train on.")
        train, test = rows[: len(rows) - test_size], rows[len(rows) - test_size :]
    else:
        raise UserError(
            f"data.path is {str(path)!r}, but there are no rows: give a folder with train.jsonl and test.jsonl, or one .jsonl, "
            ".jsonl.gz or .parquet file."
        )
    held_out = {_key(row[columns[0]]) for row in test}
    kept = [row for row in train if _key(row[columns[0]]) not in held_out]
    if not kept:
        raise UserError(f"{path} has no row to train on beside the held-out ones: lower data.test_size.")
    return kept, test, {"train": len(kept), "test": len(test), "dropped": len(train) - len(kept)}


def _key(value: object) -> str:
    return " ".join(str(value).split())


def _file(folder: Path, name: str) -> Path:
    found = [path for path in sorted(folder.iterdir()) if path.name.startswith(name) and path.name.endswith(ENDINGS)]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(
            f"{folder} has to hold one file that begins with {name!r} and ends with {', '.join(ENDINGS)}; found: {names}."
        )
    return found[0]


def _read(path: Path, columns: Sequence[str]) -> list[Row]:
    rows = []
    for place, row in rows_of_file(path, columns):
        for column in columns:
            if column not in row:
                raise UserError(f"{place} lacks the column {column!r}; it has {', '.join(row) or 'nothing'}.")
        rows.append(row)
    return rows
