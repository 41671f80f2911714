"""The places that numbers go to besides metrics.jsonl: one small interface."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from grpo_zero.errors import UserError
from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.tensorboard import TensorBoardSink
from grpo_zero.observe.tracker import TrackerSink


class Sink(Protocol):
    """Takes records as they come."""

    def write(self, record: StepRecord) -> None:
        """A step's or an evaluation's numbers."""

    def write_texts(self, step: int, texts: Sequence[str]) -> None:
        """The first prompts of a step with their answers."""

    def close(self) -> None:
        """Flush and close."""


def require_installed(names: Sequence[str]) -> None:
    """Raises ``UserError`` where the package of a sink is missing: before the work, not after it."""
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:  # a folder of that name, as wandb makes one, is no package
            raise UserError(
                f"training.sinks has {name}, but the package is not installed: install it with `uv pip install {name}`, or "
                "leave it out."
            )


def open_sinks(
    names: Sequence[str], folder: Path, config: Mapping[str, Any], keep_until_step: int | None = None
) -> list[Sink]:
    """One sink a name.

    Args:
        names: of ``training.sinks``.
        folder: the run folder.
        config: settings that services show beside the curves.
        keep_until_step: when resuming, later steps are forgotten where that is possible.
    """
    sinks: list[Sink] = []
    for name in names:
        if name == "tensorboard":
            sinks.append(TensorBoardSink(folder, keep_until_step))
        else:
            sinks.append(TrackerSink(name, folder, config))
    return sinks
