"""Weights & Biases and trackio, which share one interface: ``init``, ``log``, ``finish``."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_zero.observe.record import StepRecord

DEFAULT_PROJECT = "grpo-zero"
ID_FILE = "tracker_id"
"""In the run folder, so that a resumed run goes on as the same one."""


class TrackerSink:
    """Sends numbers under their catalogue names. Prompts and answers stay in samples.jsonl: they may be nobody else's business.

    Args:
        name: the package, ``wandb`` or ``trackio``. Its own environment variables hold, as WANDB_MODE=offline does.
        folder: the run folder, whose name is the run's.
        config: settings shown beside the curves.
    """

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        self._tracker = importlib.import_module(name)
        project = os.environ.get(f"{name.upper()}_PROJECT", DEFAULT_PROJECT)
        common = {"project": project, "config": dict(config), "resume": "allow"}
        run_id = _run_id(folder)
        if name == "wandb":
            self._tracker.init(name=folder.name, id=run_id, dir=str(folder), **common)
        else:  # trackio knows a run by its name alone
            self._tracker.init(name=f"{folder.name}-{run_id}", **common)

    def write(self, record: StepRecord) -> None:
        """A training step and the evaluation after it share a step number, and are joined there."""
        self._tracker.log(dict(record.metrics), step=record.step)

    def write_texts(self, step: int, texts: Sequence[str]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Sends what is left."""
        self._tracker.finish()


def _run_id(folder: Path) -> str:
    path = folder / ID_FILE
    if not path.is_file():
        path.write_text(uuid.uuid4().hex[:8], encoding="utf-8")
    return path.read_text(encoding="utf-8")
