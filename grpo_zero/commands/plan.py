"""``grpo-zero plan``: what a run would take, before there is a machine or a weight to run it on."""

from __future__ import annotations

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.model.spec import ModelSpec
from grpo_zero.observe.memory import available_bytes
from grpo_zero.plan.job import job_of
from grpo_zero.plan.phases import GIB
from grpo_zero.plan.planner import plan
from grpo_zero.plan.table import report


def show_plan(config: Config, spec: ModelSpec, device: str | None, memory_gib: float | None) -> None:
    """Print the plan of a GRPO run.

    Args:
        config: lengths, counts, precision.
        spec: the model's shape.
        device: ``cpu`` or ``cuda``; None is the config's, whose ``auto`` means cuda where ``memory_gib`` is given.
        memory_gib: of the device; None is ``training.memory``, or what this machine has free.

    Raises:
        UserError: it does not fit, or there is nothing to measure.
    """
    if memory_gib is None and isinstance(config.training.memory, int | float):
        memory_gib = config.training.memory
    kind = device or config.model.device.partition(":")[0]
    if kind == "auto":
        kind = "cuda" if memory_gib is not None or _free_cuda_bytes() else "cpu"
    if memory_gib is not None and memory_gib <= 0:
        raise UserError(f"--memory is {memory_gib:g}, but it is a number of GiB above 0: give one, as in --memory 24.")
    memory = _free_bytes(kind) if memory_gib is None else int(memory_gib * GIB)
    print(report(plan(job_of(config, spec, kind), memory)))


def _free_bytes(kind: str) -> int:
    free = _free_cuda_bytes() if kind == "cuda" else available_bytes()
    if not free:
        where = "GPU" if kind == "cuda" else "/proc/meminfo"
        raise UserError(
            f"There is no --memory, and this machine has no {where} to ask: give it in GiB, as in --memory 24."
        )
    return free


def _free_cuda_bytes() -> int:
    """Of the first GPU; 0 without one."""
    import torch  # only here: with --memory nothing of it is needed

    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else 0
