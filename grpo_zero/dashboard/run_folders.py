"""Which folders are runs, and which of their files may be read."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grpo_zero.errors import UserError
from grpo_zero.runs import CONFIG_FILE, RUN_FILE

METRICS_FILE = "metrics.jsonl"
SAMPLES_FILE = "samples.jsonl"
SUMMARY_FILE = "summary.json"
PLAN_FILE = "plan.json"
QUIET_S = 300.0
"""Seconds without a new record, beyond ten steps' time, after which a run counts as stopped."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run."""

    name: str
    """What the page calls it; no two runs share one."""
    path: Path

    def file(self, name: str) -> Path | None:
        """A file of the run; None where there is none, or where it is a link that leads out of the folder."""
        path = self.path / name
        try:
            resolved = path.resolve(strict=True)
        except OSError:
            return None
        return path if resolved.is_file() and resolved.is_relative_to(self.path.resolve()) else None

    def json(self, name: str) -> dict[str, Any]:
        """The object in one of its JSON files; empty where there is none yet or it is not whole."""
        path = self.file(name)
        try:
            found = json.loads(path.read_bytes()) if path else {}
        except (OSError, ValueError):  # being replaced, or damaged
            return {}
        return found if isinstance(found, dict) else {}

    def config(self) -> dict[str, Any]:
        """The sections of its config as they stand in the file; empty where it is missing or not readable."""
        path = self.file(CONFIG_FILE)
        try:
            return _read_yaml(path, path.stat().st_mtime_ns) if path else {}
        except OSError:
            return {}

    def command(self) -> str:
        """What made it: ``train``, ``sft``; empty where that is not known."""
        return str(self.json(RUN_FILE).get("command", ""))

    def planned_gib(self) -> float | None:
        """The planner's memory, where the run was planned."""
        planned = self.json(PLAN_FILE).get("planned_gib")
        return float(planned) if isinstance(planned, int | float) else None

    def changed_s(self) -> float | None:
        """When its metrics were last written, seconds since 1970."""
        path = self.file(METRICS_FILE)
        try:
            return path.stat().st_mtime if path else None
        except OSError:
            return None


@functools.lru_cache(maxsize=512)
def _read_yaml(path: Path, changed_ns: int) -> dict[str, Any]:
    """Read once for each time it was written; empty where it is not readable."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def setting(config: Mapping[str, Any], section: str, key: str) -> Any:
    """A setting of a config read as it stands; None where it is not there."""
    found = config.get(section)
    return found.get(key) if isinstance(found, dict) else None


def state_of(last_step: int, num_steps: int | None, changed_s: float | None, step_s: float) -> str:
    """``running``, ``finished`` or ``stopped``, by the steps done and the age of the last record."""
    if num_steps and last_step >= num_steps:
        return "finished"
    if changed_s is not None and time.time() - changed_s < QUIET_S + 10 * step_s:
        return "running"
    return "stopped"


def is_run(folder: Path) -> bool:
    """Whether a run has written its config or its metrics here."""
    return (folder / CONFIG_FILE).is_file() or (folder / METRICS_FILE).is_file()


def check_paths(paths: Sequence[Path]) -> None:
    """Raises UserError for a path that is no folder."""
    for path in paths:
        if not path.is_dir():
            raise UserError(f"There is no folder {path}: give a run folder, or a folder with run folders in it.")


def find_runs(paths: Sequence[Path]) -> dict[str, RunFolder]:
    """The runs at these paths, by name, newest first; a path is a run folder, or holds some at most two levels down.

    Looked for anew at each call, so that a run that has just started appears.
    """
    found: dict[Path, str] = {}
    for path in paths:
        if is_run(path):
            found.setdefault(path.resolve(), path.resolve().name)
            continue
        for pattern in ("*", "*/*"):
            for folder in path.glob(pattern):
                if folder.is_dir() and is_run(folder):
                    found.setdefault(folder.resolve(), str(folder.relative_to(path)))
    newest_first = sorted(found, key=lambda folder: folder.stat().st_mtime, reverse=True)
    runs: dict[str, RunFolder] = {}
    for folder in newest_first:
        name, number = found[folder], 2
        while name in runs:
            name, number = f"{found[folder]} ({number})", number + 1
        runs[name] = RunFolder(name, folder)
    return runs
