"""``training.memory``: a run sized by the planner, once. What was chosen stands in the run's config.yaml from then on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from grpo_zero.checkpoint.source import open_source
from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.observe.memory import available_bytes
from grpo_zero.plan.job import job_of
from grpo_zero.plan.phases import GIB
from grpo_zero.plan.planner import plan

PLAN_FILE = "plan.json"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the first start of a run planned."""

    memory: float | str
    """``training.memory`` as it was given."""
    planned_gib: float
    """To be compared with ``peak_gib``."""
    line: str

    def write(self, folder: Path) -> None:
        """Keep it in the run folder."""
        (folder / PLAN_FILE).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    def compared(self, peak_gib: float) -> str:
        """The closing line: prediction and measurement."""
        return f"memory: planned {self.planned_gib:.2f} GiB, measured peak {peak_gib:.2f} GiB"


def settle_memory(
    config: Config, device: torch.device, resume: Path | None, command: str = "train"
) -> tuple[Config, Prediction | None]:
    """The config with the planner's choice in it and ``training.memory`` null; the same config where nothing is to be planned.

    Args:
        resume: a run folder: nothing is planned anew, so that its arithmetic stays; its prediction is read.

    Raises:
        UserError: it does not fit, the free memory cannot be known, or a resumed run is to be planned again.
    """
    training = config.training
    if resume is not None:
        if training.memory is not None:
            raise UserError(
                f"training.memory is {training.memory}, but a run that goes on keeps the sizes it started with: leave it out."
            )
        path = resume / PLAN_FILE
        return config, Prediction(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
    if training.memory is None:
        return config, None
    memory = _free_bytes(device) if isinstance(training.memory, str) else int(training.memory * GIB)
    spec = open_source(config.model.pretrained_model_path, weights=not config.model.random_init).spec
    found = plan(
        job_of(config, spec, device.type, command), memory, available_bytes() if device.type == "cuda" else None
    )
    settled = replace(config, training=replace(training, memory=None, reuse_memory=False, **asdict(found.choice)))
    return settled, Prediction(training.memory, found.planned_gib, found.line)


def _free_bytes(device: torch.device) -> int:
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    if free is None:
        raise UserError("training.memory is auto, but this system does not tell what is free: give a number of GiB.")
    return int(free)
