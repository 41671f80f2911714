"""The answers of one step in samples.jsonl, however long the file.

Rows stand in the order of their steps, training before evaluation, so a step's block is found by bisection: some 30 short reads
in a file of gigabytes, no index to build or to keep, and nothing is read of what is not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

PROBE_BYTES = 1 << 14
SCAN_BYTES = 1 << 16
"""Below this a stretch of the file is read line by line."""
KINDS = ("train", "eval")
"""In the order in which a step writes them."""
HEAD = re.compile(rb'\{"step": (\d{1,18}), "kind": "(\w+)"')

Key = tuple[int, int]
LAST = (1 << 62, 0)
LARGEST_NUMBER = 1e15
"""Of what a record holds; below it whole numbers are exact for the page too."""


def block_rows(path: Path, step: int, kind: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a step's answers of one kind, each with the byte at which it begins; a torn last line is left out."""
    wanted = (step, KINDS.index(kind))
    with path.open("rb") as stream:
        offset = _first_at_least(stream, wanted)
        stream.seek(offset)
        for line in stream:
            if not line.endswith(b"\n") or _key(line) != wanted:
                return
            yield offset, line
            offset += len(line)


def row_at(path: Path, offset: int) -> dict[str, Any] | None:
    """The row that begins at this byte; None where none does."""
    with path.open("rb") as stream:
        stream.seek(max(0, offset - 1))
        if offset < 0 or (offset and stream.read(1) != b"\n"):
            return None
        line = stream.readline()
    return row_of(line) if line.endswith(b"\n") else None


def row_of(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None where it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def number_of(value: Any) -> float | None:
    """The value where it is a number of an ordinary size; None for all else a damaged row may hold, NaN and infinity included."""
    return value if type(value) in (int, float) and abs(value) < LARGEST_NUMBER else None


def _first_at_least(stream: BinaryIO, wanted: Key) -> int:
    """The byte at which the first row begins whose key is not below ``wanted``; the file's end where there is none."""
    low, high = 0, stream.seek(0, 2)  # both begin a line; the byte looked for is in low..high
    while high - low > SCAN_BYTES:
        middle = (low + high) // 2
        start = _next_line(stream, middle)
        if start >= high:  # one line reaches from before the middle to the end
            start = _line_begin(stream, middle, low)
            if start == low:
                break
        if _key_at(stream, start) < wanted:
            low = start
        else:
            high = start
    stream.seek(low)
    offset = low
    for line in stream:
        if offset >= high or _key(line) >= wanted:
            break
        offset += len(line)
    return offset


def _next_line(stream: BinaryIO, offset: int) -> int:
    """Where the first line after ``offset`` begins."""
    stream.seek(offset)
    while chunk := stream.read(PROBE_BYTES):
        found = chunk.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset += len(chunk)
    return offset


def _line_begin(stream: BinaryIO, offset: int, least: int) -> int:
    """Where the line that holds the byte ``offset`` begins, ``least`` or later."""
    while offset > least:
        start = max(least, offset - PROBE_BYTES)
        stream.seek(start)
        found = stream.read(offset - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        offset = start
    return least


def _key_at(stream: BinaryIO, offset: int) -> Key:
    stream.seek(offset)
    return _key(stream.readline())


def _key(line: bytes) -> Key:
    """Step and kind of a row; a line that is no row sorts last, as does the torn end of the file."""
    head = HEAD.match(line)
    if head:
        step, kind = int(head[1]), head[2].decode()
    else:
        row = row_of(line) or {}
        step, kind = row.get("step", -1), str(row.get("kind"))
    return (step, KINDS.index(kind)) if kind in KINDS and isinstance(step, int) else LAST
