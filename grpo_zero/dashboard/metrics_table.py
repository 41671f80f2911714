"""metrics.jsonl as columns, kept up to date by reading what was added."""

from __future__ import annotations

import json
import math
import threading
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpo_zero.dashboard.growing_file import GrowingFile


class Rows:
    """The rows of one kind. A column has a number for each row, NaN where the row lacks it."""

    def __init__(self) -> None:
        self.steps = array("d")
        self.columns: dict[str, array[float]] = {}

    def add(self, step: float, metrics: dict[str, object]) -> None:
        """One row; what is no number counts as missing."""
        for name, value in metrics.items():
            if isinstance(value, int | float):
                column = self.columns.setdefault(name, array("d"))
                column.extend([math.nan] * (len(self.steps) - len(column)))
                column.append(value)
        self.steps.append(step)

    def column(self, name: str) -> NDArray[np.float64]:
        """The numbers of a metric, one a row."""
        values = np.array(self.columns.get(name, ()), dtype=np.float64)
        return np.pad(values, (0, len(self.steps) - len(values)), constant_values=np.nan)


class MetricsTable:
    """All rows of a run's metrics. Safe to use from several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.version = 0
        """Changes whenever rows were added or the file was written anew."""
        self._file = GrowingFile()
        self._clear()

    def _clear(self) -> None:
        self.training, self.evaluations = Rows(), Rows()

    def refresh(self, path: Path | None) -> None:
        """Take in what was added. A file that has gone away leaves what was read."""
        if path is None:
            return
        with self.lock:
            try:
                if self._file.is_replaced(path):
                    self._clear()
                    self.version += 1
                for line in self._file.new_lines(path):
                    self._add(line)
                    self.version += 1
            except OSError:
                return

    def _add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except ValueError:  # a line that a crash tore; the run's next start drops it
            return
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            return
        kind, step = row.pop("kind", ""), row.pop("step")
        (self.evaluations if kind == "eval" else self.training).add(step, row)

    def names(self) -> list[str]:
        """All metrics seen, those of evaluations last."""
        return [*self.training.columns, *(n for n in self.evaluations.columns if n not in self.training.columns)]

    def series(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Steps and values of a metric, one a row of its kind."""
        rows = self.evaluations if name.startswith("eval/") else self.training
        with self.lock:
            return np.array(rows.steps, dtype=np.float64), rows.column(name)

    def last(self, name: str) -> float | None:
        """The newest number of a metric."""
        values = self.series(name)[1]
        known = values[~np.isnan(values)]
        return float(known[-1]) if known.size else None

    def last_step(self) -> int:
        """The newest step of any kind, 0 before the first."""
        return int(max([0, *self.training.steps[-1:], *self.evaluations.steps[-1:]]))
