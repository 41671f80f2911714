"""Where a run goes on: its newest checkpoint that is whole and its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_zero.changes import check_changes
from grpo_zero.checkpoint.atomic import recover
from grpo_zero.checkpoint.checksums import damage
from grpo_zero.checkpoint.source import open_source
from grpo_zero.config import Config, ModelConfig
from grpo_zero.errors import UserError
from grpo_zero.runs import (
    MODEL_FOLDER,
    STATE_FILE,
    check_command,
    checkpoint_folder,
    read_state,
    resumable_checkpoints,
    run_config,
)


@dataclass(frozen=True, slots=True)
class Start:
    """What a run begins or goes on with."""

    model: ModelConfig
    """Names the weights."""
    checkpoint: Path | None = None
    """None begins at the first step."""
    step: int = 0
    """The last step done."""
    is_evaluated: bool = True
    """Whether the evaluation after that step, if one was due, was done and recorded."""
    is_resumed: bool = False
    notes: tuple[str, ...] = ()
    """Sentences for the log: what was passed over."""

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the run's records stays: not those of steps that will be done again."""
        if self.checkpoint is None or row["step"] > self.step:
            return False
        return row["step"] < self.step or row["kind"] != "eval" or self.is_evaluated

    @property
    def is_kept(self) -> Callable[[Mapping[str, Any]], bool] | None:
        """``keeps`` for a run that goes on; None for a new one, which has no records."""
        return self.keeps if self.is_resumed else None


def check_resumed(run_folder: Path, config: Config, command: str) -> list[str]:
    """Sentences about what ``config`` changes in a run that goes on.

    Raises:
        UserError: it changes what must stay, or the run is another command's.
    """
    check_command(run_folder, command)
    return check_changes(run_config(run_folder), config)


def find_start(config: Config, run_folder: Path | None) -> Start:
    """The start of a new run, or where the run in ``run_folder`` goes on.

    Checkpoints that are damaged or hold another model are passed over for the one before, with a note. A run that has none yet
    begins again.

    Raises:
        UserError: there are checkpoints, but none can be used.
    """
    if run_folder is None:
        return Start(config.model)
    folder = checkpoint_folder(config, run_folder)
    recover(folder)
    found = resumable_checkpoints(folder)
    if not found:
        return Start(config.model, is_resumed=True, notes=("no checkpoint yet: starting from the first step",))
    notes: list[str] = []
    for checkpoint in reversed(found):
        fault = _fault(checkpoint, config)
        if fault is None:
            return start_at(config, checkpoint, tuple(notes))
        notes.append(f"passed over {checkpoint.name}: {fault}")
    raise UserError(
        f"None of the {len(found)} checkpoints in {folder} can be used ({'; '.join(notes)}): restore one from a copy, or start "
        "again with a new training.run_name."
    )


def start_at(config: Config, checkpoint: Path, notes: tuple[str, ...] = ()) -> Start:
    """Right after that checkpoint, which is whole."""
    state = read_state(checkpoint)
    is_evaluated = bool(state.get("is_evaluated", True))
    return Start(_model(config, checkpoint), checkpoint, state["step"], is_evaluated, is_resumed=True, notes=notes)


def _model(config: Config, checkpoint: Path) -> ModelConfig:
    if config.lora.rank:  # its model has the adapters merged in; the run goes on with both apart
        return config.model
    return replace(config.model, pretrained_model_path=str(checkpoint / MODEL_FOLDER), random_init=False)


def _fault(checkpoint: Path, config: Config) -> str | None:
    """Why the run cannot go on from it; None when it can."""
    try:
        has_checksums = bool(read_state(checkpoint).get("has_checksums"))  # those from before there were any do not say
    except UserError:
        return f"{STATE_FILE} is damaged"
    fault = damage(checkpoint) if has_checksums else None
    if fault is not None:
        return fault
    try:
        expected = open_source(config.model.pretrained_model_path, weights=False).spec
    except UserError:  # the model the run started from is gone, which is its own affair
        return None
    try:
        found = open_source(str(checkpoint / MODEL_FOLDER), weights=False).spec
    except UserError as error:
        return str(error)
    if replace(found, tied_head=expected.tied_head) != expected:
        return f"it holds another model than {config.model.pretrained_model_path}"
    return None
