"""The page's questions and their answers, as plain functions from parameters to what becomes JSON."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo_zero.dashboard import answers
from grpo_zero.dashboard.metrics_table import MetricsTable
from grpo_zero.dashboard.panels import PANELS, recorded
from grpo_zero.dashboard.run_folders import METRICS_FILE, SAMPLES_FILE, RunFolder, find_runs, setting, state_of
from grpo_zero.dashboard.sample_blocks import KINDS
from grpo_zero.dashboard.series import describe, panel_lines
from grpo_zero.doctor.diagnose import closing_line, diagnose
from grpo_zero.doctor.evidence import read_run
from grpo_zero.errors import UserError

MAX_POINTS = 1200
"""Rows drawn of one run in one chart."""
MAX_CHARACTERS = 50_000
"""Of an answer, in one reply."""

Parameters = Mapping[str, str]


class NotFound(Exception):
    """What was asked for is not there; the message says what."""


class Api:
    """Answers about the runs at some paths. Metrics are kept in memory and brought up to date when asked for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        self._tables: dict[Path, MetricsTable] = {}
        self._lock = threading.Lock()
        self.routes: dict[str, Callable[[Parameters], Any]] = {
            "runs": self.runs,
            "series": self.series,
            "findings": self.findings,
            "steps": self.steps,
            "groups": self.groups,
            "group": self.group,
            "questions": self.questions,
            "follow": self.follow,
            "text": self.text,
        }

    def runs(self, parameters: Parameters) -> Any:
        """All runs, newest first: state, newest step, and a version that changes when there is more to show."""
        return {"runs": [self._run_facts(run) for run in find_runs(self.paths).values()], "panels": _panel_facts()}

    def series(self, parameters: Parameters) -> Any:
        """One chart of one run: ``run``, ``panel``, ``first`` and ``last`` where zoomed in, and ``mean``, a number of steps."""
        run, table = self._run(parameters)
        panel = next((panel for panel in PANELS if panel.key == parameters.get("panel")), None)
        if panel is None:
            raise NotFound("There is no such chart.")
        first, last = number(parameters, "first", -math.inf), number(parameters, "last", math.inf)
        window = max(1, int(number(parameters, "mean", 1)))
        names = recorded(panel, table.names())
        return {
            "lines": panel_lines(panel, table, MAX_POINTS, first, last, window),
            "metrics": [describe(name) for name in names],
            "planned_gib": run.planned_gib() if panel.has_plan else None,
        }

    def findings(self, parameters: Parameters) -> Any:
        """What the doctor says of a run: ``findings``, worst first, and a ``closing`` sentence, null where it cannot judge."""
        run, _ = self._run(parameters)
        try:
            evidence = read_run(run.path)
        except UserError:  # no GRPO step yet, or a run of another command
            return {"findings": [], "closing": None}
        found = diagnose(evidence)
        shown = [asdict(finding) | {"link": finding.link} for finding in found]
        return {"findings": shown, "closing": closing_line(evidence, len(found))}

    def steps(self, parameters: Parameters) -> Any:
        """The steps of a run that have answers, by kind."""
        run, table = self._run(parameters)
        trained = [int(step) for step in table.training.steps] if run.command() != "sft" else []
        return {"train": trained, "eval": [int(step) for step in table.evaluations.steps]}

    def groups(self, parameters: Parameters) -> Any:
        """The groups of ``step`` and ``kind``, without texts."""
        path, step, kind, size = self._block(parameters)
        return {"groups": answers.groups(path, step, kind, size)}

    def group(self, parameters: Parameters) -> Any:
        """The answers of the group ``index``."""
        path, step, kind, size = self._block(parameters)
        found = answers.group(path, step, kind, size, int(number(parameters, "index", 0)))
        if found is None:
            raise NotFound("There is no such group.")
        return found

    def questions(self, parameters: Parameters) -> Any:
        """The held-out questions of the latest evaluation."""
        run, table = self._run(parameters)
        steps = table.evaluations.steps
        path = run.file(SAMPLES_FILE)
        if not steps or path is None:
            return {"questions": [], "step": None}
        found = answers.groups(path, int(steps[-1]), "eval", _group_size(run, "eval"))
        return {"questions": found, "step": int(steps[-1])}

    def follow(self, parameters: Parameters) -> Any:
        """The held-out question ``index`` in every evaluation."""
        run, table = self._run(parameters)
        steps = [int(step) for step in table.evaluations.steps]
        index = int(number(parameters, "index", 0))
        found = answers.follow(_samples(run), steps, _group_size(run, "eval"), index)
        if found is None:
            raise NotFound("There is no such question.")
        return found

    def text(self, parameters: Parameters) -> Any:
        """More of the answer whose row begins at byte ``at``: ``count`` characters from ``start``."""
        run, _ = self._run(parameters)
        start, count = int(number(parameters, "start", 0)), int(number(parameters, "count", MAX_CHARACTERS))
        at = int(number(parameters, "at", 0))
        found = answers.text(_samples(run), at, max(0, start), min(max(0, count), MAX_CHARACTERS))
        if found is None:
            raise NotFound("There is no such answer.")
        return found

    def _run(self, parameters: Parameters) -> tuple[RunFolder, MetricsTable]:
        run = find_runs(self.paths).get(parameters.get("run", ""))
        if run is None:
            raise NotFound("There is no such run.")
        return run, self._table(run)

    def _table(self, run: RunFolder) -> MetricsTable:
        with self._lock:
            table = self._tables.setdefault(run.path, MetricsTable())
        table.refresh(run.file(METRICS_FILE))
        return table

    def _block(self, parameters: Parameters) -> tuple[Path, int, str, int | None]:
        run, _ = self._run(parameters)
        kind = parameters.get("kind", "train")
        if kind not in KINDS:
            raise NotFound(f"kind is {kind!r}, but answers are of kind {' or '.join(KINDS)}.")
        return _samples(run), int(number(parameters, "step", 0)), kind, _group_size(run, kind)

    def _run_facts(self, run: RunFolder) -> dict[str, Any]:
        table, config = self._table(run), run.config()
        command = run.command()
        num_steps = setting(config, "sft" if command == "sft" else "training", "max_steps")
        return {
            "name": run.name,
            "version": table.version,
            "command": command,
            "state": state_of(
                table.last_step(),
                num_steps if isinstance(num_steps, int) else None,
                run.changed_s(),
                table.last("step_s") or 0.0,
            ),
            "step": table.last_step(),
            "num_steps": num_steps,
            "changed_s": run.changed_s(),
            "success": table.last("eval/success"),
            "model": setting(config, "model", "pretrained_model_path"),
            "task": setting(config, "data", "task"),
            "algorithm": setting(config, "algorithm", "preset"),
            "panels": [panel.key for panel in PANELS if recorded(panel, table.names())],
        }


def number(parameters: Parameters, name: str, default: float) -> float:
    """A number among the parameters.

    Raises:
        NotFound: it is none.
    """
    text = parameters.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise NotFound(f"{name} is {text!r}, but it has to be a number.") from None
    if not math.isfinite(value):
        raise NotFound(f"{name} is {text!r}, but it has to be finite.")
    return value


def _panel_facts() -> list[dict[str, Any]]:
    return [
        {name: value for name, value in asdict(panel).items() if name in ("key", "title", "style")} for panel in PANELS
    ]


def _samples(run: RunFolder) -> Path:
    path = run.file(SAMPLES_FILE)
    if path is None:
        raise NotFound("The run has no samples.jsonl yet.")
    return path


def _group_size(run: RunFolder, kind: str) -> int | None:
    """Answers to a question, by the run's config."""
    config = run.config()
    if kind == "eval":
        size = setting(config, "evaluation", "samples_per_problem")
        return size if isinstance(size, int) else None
    batch, questions = setting(config, "training", "batch_size"), setting(config, "training", "num_questions_per_batch")
    return batch // questions if isinstance(batch, int) and isinstance(questions, int) and questions > 0 else None
