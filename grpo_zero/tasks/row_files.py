"""Rows of parquet and JSON-lines files, each with its place for messages."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from grpo_zero.errors import UserError

Row = dict[str, Any]
ENDINGS = (".parquet", ".jsonl", ".jsonl.gz")
"""Of the files that ``rows_of_file`` reads."""


def rows_of_file(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Place and row, in order, all columns. ``columns`` are those that a parquet file must have.

    Raises ``UserError`` naming the file, and the line, for whatever cannot be read.
    """
    return _parquet_rows(file, columns) if file.suffix == ".parquet" else _jsonl_rows(file, columns)


def _parquet_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    try:
        table = pq.read_table(file, partitioning=None)
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a text that is no UTF-8, an impossible date
        raise UserError(
            f"{file} is not a readable parquet file ({error}); perhaps the download is "
            "incomplete, or it is a Git LFS pointer: fetch it again."
        ) from None
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise UserError(
            f"{file} lacks the column {missing[0]!r}; it has {', '.join(table.column_names)}. "
            f"The data need {_listed(columns)}."
        )
    for index, row in enumerate(rows):
        yield f"{file} row {index}", row


def _jsonl_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    compressed = file.name.endswith(".gz")
    try:
        data = gzip.decompress(file.read_bytes()) if compressed else file.read_bytes()
        lines = data.decode("utf-8").split("\n")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        kind = "gzip of UTF-8 text" if compressed else "UTF-8 text"
        raise UserError(f"{file} cannot be read as {kind} ({error}); fetch it again.") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file} line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place} is not JSON ({error}); correct or remove it.") from None
        if not isinstance(row, dict):
            raise UserError(f"{place} is a JSON {type(row).__name__}; expected an object with {_listed(columns)}.")
        yield place, row


def _listed(columns: Sequence[str]) -> str:
    return " and ".join(map(repr, columns))
