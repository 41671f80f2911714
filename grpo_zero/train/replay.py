"""Steps of a run done again from one of its checkpoints, and held against what it recorded and saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from grpo_zero.checkpoint.adapter import WEIGHTS_FILE
from grpo_zero.checkpoint.save import hf_pieces
from grpo_zero.checkpoint.source import open_source
from grpo_zero.config import Config
from grpo_zero.model.lora import MergedState, adapter_tensors
from grpo_zero.observe.catalogue import find_metric
from grpo_zero.observe.files import finite
from grpo_zero.runs import ADAPTER_FOLDER, MODEL_FOLDER, OPTIMIZER_FILE
from grpo_zero.train.loop import GRPO
from grpo_zero.train.resume import Start
from grpo_zero.train.run import set_up


@dataclass(frozen=True, slots=True)
class Difference:
    """One number or tensor that did not come out as it was."""

    what: str
    recorded: Any
    found: Any


@dataclass(frozen=True, slots=True)
class Replayed:
    """One step, or the checkpoint at the end."""

    what: str
    num_compared: int
    differences: tuple[Difference, ...]


def replay(
    config: Config, start: Start, recorded: Mapping[int, Mapping[str, Any]], end: Path | None, last_step: int
) -> Iterator[Replayed]:
    """Do the steps after ``start`` again.

    Args:
        config: the run's own.
        start: where from.
        recorded: the run's training rows by step; every step up to ``last_step`` has one.
        end: the checkpoint of ``last_step`` to compare with, None for none.
        last_step: where to stop.

    Yields:
        One result a step, as it is done, then one for the checkpoint.
    """
    grpo = set_up(config, start).grpo
    for step in range(start.step + 1, last_step + 1):
        yield compare_metrics(step, grpo.step(step).record.metrics, recorded[step])
    if end is not None:
        yield compare_checkpoint(grpo, end)


def compare_metrics(step: int, found: Mapping[str, float], recorded: Mapping[str, Any]) -> Replayed:
    """The numbers that are not measurements of time or memory, each exactly."""
    metrics = {name: find_metric(name) for name in found}
    names = [name for name, metric in metrics.items() if metric is not None and metric.is_repeatable]
    values = finite({name: found[name] for name in names})
    different = [
        Difference(name, recorded.get(name), values[name]) for name in names if recorded.get(name) != values[name]
    ]
    return Replayed(f"step {step}", len(names), tuple(different))


def compare_checkpoint(grpo: GRPO, checkpoint: Path) -> Replayed:
    """Weights and optimizer states, bit for bit."""
    decoder = grpo.policy.decoder
    model = open_source(str(checkpoint / MODEL_FOLDER))
    pairs = [(name, piece, model.tensor(name)) for name, piece in hf_pieces(MergedState(decoder), decoder.spec)]
    if grpo.config.lora.rank:
        with safe_open(checkpoint / ADAPTER_FOLDER / WEIGHTS_FILE, framework="pt") as file:
            pairs += [(name, x, file.get_tensor(name)) for name, x in adapter_tensors(decoder).items()]
    with safe_open(checkpoint / OPTIMIZER_FILE, framework="pt") as file:
        pairs += [(name, x, file.get_tensor(name)) for name, x in grpo.optimizer.tensors().items()]
    different = [Difference(name, *_largest(saved, found)) for name, found, saved in pairs if not _equal(found, saved)]
    return Replayed(f"weights and optimizer states of {checkpoint.name}", len(pairs), tuple(different))


def _equal(found: Tensor, saved: Tensor) -> bool:
    return torch.equal(found.detach().cpu().to(saved.dtype), saved)


def _largest(saved: Tensor, found: Tensor) -> tuple[float, float]:
    """The two values at the place where they are furthest apart."""
    found = found.detach().cpu()
    at = (found.double() - saved.double()).abs().argmax()
    return saved.flatten()[at].item(), found.flatten()[at].item()
