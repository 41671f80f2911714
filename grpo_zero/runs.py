"""The layout of a run's folder: where its config, checkpoints and models lie. No torch here."""

from __future__ import annotations

import time
from pathlib import Path

from grpo_zero.config import Config, dump_yaml, load_config
from grpo_zero.errors import UserError

CONFIG_FILE = "config.yaml"
MODEL_FOLDER = "model"
ADAPTER_FOLDER = "adapter"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"


def new_run_folder(config: Config) -> Path:
    """A fresh folder ``log_dir/run_name`` with the resolved config in it.

    Raises:
        UserError: a run of that name exists, or the folder can't be made.
    """
    training = config.training
    folder = Path(training.log_dir) / (training.run_name or time.strftime("%Y%m%d-%H%M%S"))
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(
            f"The run folder {folder} already exists: give another training.run_name, or go on with `--resume {folder}`."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The run folder {folder} can't be made ({error.strerror}): give another training.log_dir or training.run_name."
        ) from error
    (folder / CONFIG_FILE).write_text(dump_yaml(config), encoding="utf-8")
    return folder


def run_config(folder: Path, overrides: list[str] | None = None) -> Config:
    """The config a run was started with, ``overrides`` over it.

    Raises:
        UserError: the folder is no run folder, or an override is wrong.
    """
    if not (folder / CONFIG_FILE).is_file():
        raise UserError(f"{folder} is no run folder: expected a folder with {CONFIG_FILE} that a run has made.")
    return load_config(str(folder / CONFIG_FILE), overrides or [])


def checkpoint_folder(config: Config, run_folder: Path) -> Path:
    """Where the run's checkpoints go."""
    ckpt_dir = config.training.ckpt_dir
    return run_folder / "checkpoints" if ckpt_dir is None else Path(ckpt_dir) / run_folder.name


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in a checkpoint folder, oldest first."""
    return sorted(path for path in folder.glob("step_*") if (path / STATE_FILE).is_file())


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that a run can go on from, None when there is none."""
    found = [path for path in checkpoints(folder) if (path / OPTIMIZER_FILE).is_file()]
    return found[-1] if found else None


def model_of(path: str) -> str:
    """The newest model in a run folder, the model in a checkpoint folder, or ``path`` itself when it is neither.

    Raises:
        UserError: a run folder without a checkpoint.
    """
    folder = Path(path)
    if (folder / STATE_FILE).is_file():
        return str(folder / MODEL_FOLDER)
    if not (folder / CONFIG_FILE).is_file():
        return path
    found = checkpoints(checkpoint_folder(run_config(folder), folder))
    if not found:
        raise UserError(f"{path} is a run folder without a checkpoint: name a model folder instead.")
    return str(found[-1] / MODEL_FOLDER)
