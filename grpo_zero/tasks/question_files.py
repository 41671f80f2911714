"""Rows of questions from files: one JSON-lines file, or a folder with ``train.jsonl`` and ``test.jsonl``; parquet likewise.

A folder may also be a data set's repository: its files in one subfolder, or in one a variant, and in several parts
(``train-00000-of-00002.parquet``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from grpo_zero.errors import UserError
from grpo_zero.tasks.row_files import ENDINGS, Row, rows_of_file

MAIN_FOLDERS = ("main", "default", "data")
"""Which subfolder is meant where several have training rows."""
_PART = re.compile(r"-\d{5}-of-(\d{5})\.parquet$")


def read_questions(
    path: str | Path, columns: Sequence[str], test_size: int, key: Callable[[Row], object] | None = None
) -> tuple[list[Row], list[Row], dict[str, int]]:
    """Rows to train on, held-out rows, and facts: how many of each, how many training rows were dropped as held-out ones.

    Args:
        path: a folder with files named train and test, of which the first ``test_size`` test rows are held out; or one file, or
            a folder with a file named train alone, of which the last ``test_size`` rows are.
        columns: what every row must have.
        key: what makes two rows the same question; None = the first column.

    Raises:
        UserError: nothing there, an unreadable line, a missing column, or too few rows.
    """
    path = Path(path)
    if path.is_dir():
        path = _folder_of_rows(path)
        train = _read(_files(path, "train"), columns)
        test = _read(_files(path, "test"), columns) if _named(path, "test") else None
    elif path.is_file() and path.name.endswith(ENDINGS):
        train, test = _read([path], columns), None
    else:
        raise UserError(
            f"data.path is {str(path)!r}, but there are no rows: give a folder with train.jsonl and test.jsonl, one .jsonl, "
            ".jsonl.gz or .parquet file, or the id of a data set on the Hugging Face hub."
        )
    if test is None:
        if test_size >= len(train):
            raise UserError(f"data.test_size is {test_size}, but {path} has {len(train)} rows: leave some to train on.")
        train, test = train[: len(train) - test_size], train[len(train) - test_size :]
    elif test_size > len(test):
        raise UserError(f"data.test_size is {test_size}, but {path} has {len(test)} test rows: give at most that many.")
    test = test[:test_size]

    def key_of(row: Row) -> str:
        return " ".join(str(row[columns[0]] if key is None else key(row)).split())

    held_out = {key_of(row) for row in test}
    kept = [row for row in train if key_of(row) not in held_out]
    if not kept:
        raise UserError(f"{path} has no row to train on beside the held-out ones: lower data.test_size.")
    return kept, test, {"train": len(kept), "test": len(test), "dropped": len(train) - len(kept)}


def _folder_of_rows(folder: Path) -> Path:
    """The folder itself, or the one below it that has training rows; of several that of ``MAIN_FOLDERS``."""
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and _named(path, "train")]
    if _named(folder, "train") or not below:
        return folder
    if len(below) == 1:
        return below[0]
    for name in MAIN_FOLDERS:
        if folder / name in below:
            return folder / name
    raise UserError(
        f"{folder} has training rows in {', '.join(path.name for path in below)}: name one, as in "
        f"data.path={folder}/{below[0].name}."
    )


def _named(folder: Path, name: str) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name.startswith(name) and path.name.endswith(ENDINGS)]


def _files(folder: Path, name: str) -> list[Path]:
    """The file of that name, or all its parts in order."""
    found = _named(folder, name)
    parts = [_PART.search(path.name) for path in found]
    is_whole = all(part is not None and int(part[1]) == len(found) for part in parts)
    if not found or (len(found) > 1 and not is_whole):
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(
            f"{folder} has to hold one file that begins with {name!r} and ends with {', '.join(ENDINGS)}, or all its parts; "
            f"found: {names}."
        )
    return found


def _read(files: Sequence[Path], columns: Sequence[str]) -> list[Row]:
    rows = []
    for path in files:
        for place, row in rows_of_file(path, columns):
            for column in columns:
                if column not in row:
                    raise UserError(f"{place} lacks the column {column!r}; it has {', '.join(row) or 'nothing'}.")
            rows.append(row)
    return rows
