"""What a run folder tells, as the rules read it: series of numbers with their steps, the config, a few answers."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.observe.files import read_rows, read_tail
from grpo_zero.runs import run_config

WINDOW = 10
"""Most steps that a mean at the start or the end of a run is taken over."""
SAMPLE_BYTES = 4 << 20
"""How much of the end of samples.jsonl is read: it may hold gigabytes."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring steps of a series."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the window; NaN where nothing is recorded, and a comparison with it is false."""
        return statistics.fmean(self.values) if self.values else math.nan

    def __str__(self) -> str:
        if not self.values:
            return f"{self.name} not recorded"
        first, last = self.steps[0], self.steps[-1]
        where = f"step {first}" if first == last else f"steps {first} to {last}"
        return f"{self.name} {number(self.mean)} ({where})"


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over the steps that have it; values that are no numbers are left out."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def size(self) -> int:
        """Steps of a window: 10, or a third of a short series."""
        return max(1, min(WINDOW, len(self) // 3))

    @property
    def head(self) -> Window:
        """The first steps."""
        return Window(self.name, self.steps[: self.size], self.values[: self.size])

    @property
    def tail(self) -> Window:
        """The last steps."""
        return Window(self.name, self.steps[-self.size :], self.values[-self.size :])

    @property
    def best(self) -> Window:
        """The neighbouring steps with the highest mean."""
        if not self.values:
            return self.tail
        starts = range(len(self) - self.size + 1)
        start = max(starts, key=lambda at: statistics.fmean(self.values[at : at + self.size]))
        stop = start + self.size
        return Window(self.name, self.steps[start:stop], self.values[start:stop])

    @property
    def gain(self) -> float:
        """Mean at the end less mean at the start."""
        return self.tail.mean - self.head.mean

    @property
    def noise(self) -> float:
        """Standard error of ``gain`` were nothing moving: from the differences of neighbouring steps, which a slow trend leaves
        alone (von Neumann, 1941)."""
        if len(self) < 2:
            return math.inf
        jumps = [after - before for before, after in itertools.pairwise(self.values)]
        return math.sqrt(statistics.fmean(jump * jump for jump in jumps) / self.size)

    def moved(self, at_least: float) -> bool:
        """Whether ``gain``, of either sign, is at least that and above three times the noise."""
        return abs(self.gain) >= at_least and abs(self.gain) > 3 * self.noise

    def rose(self, at_least: float) -> bool:
        """``moved``, upwards."""
        return self.gain > 0 and self.moved(at_least)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the rules look at."""

    config: Config
    train: Sequence[Row]
    """Rows of metrics.jsonl of kind train."""
    evals: Sequence[Row] = ()
    """Those of kind eval."""
    samples: Sequence[Row] = ()
    """The last rows of samples.jsonl."""
    plan: Row = field(default_factory=dict)
    """plan.json, empty where nothing was planned."""
    summary: Row = field(default_factory=dict)
    """summary.json, empty while the run is going on."""

    def series(self, name: str) -> Series:
        """A metric of the training steps."""
        return _series(name, self.train)

    def eval_series(self, name: str) -> Series:
        """A metric of the evaluations."""
        return _series(name, self.evals)

    @property
    def parts(self) -> list[Series]:
        """The parts of the reward."""
        names = dict.fromkeys(name for row in self.train for name in row if name.startswith("reward/"))
        return [self.series(name) for name in names]

    @property
    def num_steps(self) -> int:
        """Training steps recorded."""
        return len(self.train)


def read_run(folder: Path) -> Evidence:
    """The evidence of a run folder, also of a run that is going on.

    Raises:
        UserError: it is no run folder, or no GRPO step is recorded in it.
    """
    config = run_config(folder)
    metrics = folder / "metrics.jsonl"
    rows = read_rows(metrics) if metrics.is_file() else []
    train = [row for row in rows if row["kind"] == "train"]
    if not train:
        what = "a run of grpo-zero sft" if any(row["kind"] == "sft" for row in rows) else "without a training step yet"
        raise UserError(
            f"{folder} is {what}, but there has to be at least one GRPO step: name a run of grpo-zero train."
        )
    samples = folder / "samples.jsonl"
    return Evidence(
        config=config,
        train=train,
        evals=[row for row in rows if row["kind"] == "eval"],
        samples=read_tail(samples, SAMPLE_BYTES) if samples.is_file() else [],
        plan=_read_json(folder / "plan.json"),
        summary=_read_json(folder / "summary.json"),
    )


def number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(share: float) -> str:
    """``12.5 %``."""
    return f"{100 * share:.1f} %"


def _series(name: str, rows: Sequence[Row]) -> Series:
    found = [(row["step"], float(row[name])) for row in rows if row.get(name) is not None]
    return Series(name, tuple(step for step, _ in found), tuple(value for _, value in found))


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
