"""metrics.jsonl, samples.jsonl, summary.json: readable during the run, whole after a crash."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from grpo_zero.errors import UserError
from grpo_zero.json_text import json_object, json_text
from grpo_zero.observe.record import SampleRecord, StepRecord


class JsonLines:
    """An append-only file of JSON objects, each on disk as soon as it is written.

    Args:
        path: created with its folder when missing, else appended to.
        is_kept: when resuming, rows it is false for are dropped first, so that a resumed run's file
            equals that of a run never interrupted. None keeps all.

    A last line torn by a crash is dropped in any case. Raises ``UserError`` when resuming for any other line that is no record.
    """

    def __init__(self, path: Path, is_kept: Callable[[Mapping[str, Any]], bool] | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _drop_torn_and_unkept(path, is_kept)
        self._stream = path.open("a", encoding="utf-8", buffering=1, newline="\n")

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one line; numbers that JSON lacks (NaN, infinity) become null."""
        self._stream.write(json_text(finite(row)) + "\n")

    def sync(self) -> None:
        """Waits until all lines are on the disk."""
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()


class MetricsFile(JsonLines):
    """metrics.jsonl: ``{"step": 3, "kind": "train", "reward": 0.41, ...}``."""

    def write(self, record: StepRecord) -> None:
        """Appends a step's numbers."""
        self.append({"step": record.step, "kind": record.kind, **record.metrics})


class SamplesFile(JsonLines):
    """samples.jsonl: the fields of ``SampleRecord``."""

    def write(self, record: SampleRecord) -> None:
        """Appends one completion, without what the run does not keep."""
        values = {field: getattr(record, field.name) for field in dataclasses.fields(record)}
        self.append({f.name: value for f, value in values.items() if value is not None or f.default is not None})


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines that may still be growing: a torn last line is left out."""
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def read_tail(path: Path, num_bytes: int) -> list[dict[str, Any]]:
    """The rows in about the last ``num_bytes`` of a file of JSON lines; a row cut at the front is left out."""
    with path.open("rb") as stream:
        start = max(0, path.stat().st_size - num_bytes)
        stream.seek(start)
        lines = stream.read().split(b"\n")
    return [json.loads(line) for line in lines[1 if start else 0 : -1]]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a whole file of JSON lines: all of them or none whatever happens. NaN and infinity become null."""
    _replace(path, "".join(json_text(finite(row)) + "\n" for row in rows))


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Writes JSON that is either the old or the new content whatever happens, never a part."""
    _replace(path, json_text(finite(summary), indent=2) + "\n")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def _drop_torn_and_unkept(path: Path, is_kept: Callable[[Mapping[str, Any]], bool] | None) -> None:
    *lines, torn = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    kept = lines
    if is_kept is not None:
        kept = [line for number, line in enumerate(lines, 1) if is_kept(_record(line, f"{path} line {number}"))]
    if torn or len(kept) < len(lines):
        _replace(path, "".join(line + "\n" for line in kept))


def _record(line: str, place: str) -> Mapping[str, Any]:
    row = json_object(line.encode(), place, "remove that line to go on")
    if type(row.get("step")) is not int or "kind" not in row:
        raise UserError(f"{place} is no record with step and kind: remove that line to go on.")
    return row


def finite(value: Any) -> Any:
    """The value with every NaN and infinity replaced by None, at any depth."""
    if isinstance(value, Mapping):
        return {key: finite(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [finite(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
