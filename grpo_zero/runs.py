"""The layout of a run's folder: where its config, checkpoints and models lie. No torch here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from grpo_zero.changes import changes
from grpo_zero.config import Config, dump_yaml, load_config
from grpo_zero.errors import UserError
from grpo_zero.json_text import json_object

CONFIG_FILE = "config.yaml"
RUN_FILE = "run.json"
MODEL_FOLDER = "model"
ADAPTER_FOLDER = "adapter"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"


def new_run_folder(config: Config, command: str) -> Path:
    """A fresh folder ``log_dir/run_name`` with the resolved config and the command in it.

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
    (folder / RUN_FILE).write_text(json.dumps({"command": command}) + "\n", encoding="utf-8")
    write_config(folder, config)
    return folder


def write_config(folder: Path, config: Config) -> None:
    """Write the run's ``config.yaml``: the old one or the new one, never a part."""
    aside = folder / f".{CONFIG_FILE}.tmp"
    aside.write_text(dump_yaml(config), encoding="utf-8")
    aside.replace(folder / CONFIG_FILE)


def check_command(folder: Path, command: str) -> None:
    """Raises UserError when the run in ``folder`` is another command's."""
    started_by = _command(folder)
    if started_by not in (None, command):
        raise UserError(
            f"{folder} is a run of grpo-zero {started_by}: go on with grpo-zero {started_by} --resume {folder}."
        )


def _command(folder: Path) -> str | None:
    """None for a run from before it was written down."""
    path = folder / RUN_FILE
    if not path.is_file():
        return None
    command = json_object(path.read_bytes(), str(path), "remove that file to go on with the run").get("command")
    return str(command)


def find_run(config: Config, command: str) -> Path | None:
    """The run that ``--resume auto`` goes on with: that of ``run_name``, else the latest of ``command`` in ``log_dir`` with this
    config, whatever a resumed run may change aside. None when there is none yet."""
    training = config.training
    log_dir = Path(training.log_dir)
    if training.run_name:
        named = log_dir / training.run_name
        return named if (named / CONFIG_FILE).is_file() else None
    files = sorted(log_dir.glob(f"*/{CONFIG_FILE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for file in files:
        try:
            found = changes(run_config(file.parent), config)
        except UserError:  # a run of another version, or not ours
            continue
        if all(change.may_change for change in found) and _command(file.parent) in (None, command):
            return file.parent
    return None


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


def read_state(checkpoint: Path) -> dict[str, Any]:
    """A checkpoint's ``trainer_state.json``: ``step`` and ``num_steps`` are counts, ``success`` is a share or null.

    Raises:
        UserError: it is damaged.
    """
    path = checkpoint / STATE_FILE
    state = json_object(path.read_bytes(), str(path), "restore it from a copy")
    for key, value in {"step": None, "num_steps": None, **state}.items():
        is_count = type(value) is int and value >= 0
        if key in ("step", "num_steps") and not is_count:
            raise UserError(f"{path} is damaged: {key} is no count; restore it from a copy.")
        if key == "success" and value is not None and (type(value) not in (int, float) or not 0 <= value <= 1):
            raise UserError(f"{path} is damaged: success is no share; restore it from a copy.")
    return state


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in a checkpoint folder, oldest first."""
    return sorted(path for path in folder.glob("step_*") if (path / STATE_FILE).is_file())


def resumable_checkpoints(folder: Path) -> list[Path]:
    """Those that still have their optimizer states, oldest first."""
    return [path for path in checkpoints(folder) if (path / OPTIMIZER_FILE).is_file()]


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that a run can go on from, None when there is none."""
    return next(reversed(resumable_checkpoints(folder)), None)


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
