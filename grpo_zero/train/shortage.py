"""What to say when memory runs out for good: where it went, by the planner's arithmetic, and which key to lower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from grpo_zero.config import Config, TrainingConfig
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.observe.memory import available_bytes
from grpo_zero.out_of_memory import OutOfMemory
from grpo_zero.plan.job import job_of
from grpo_zero.plan.phases import GIB, Choice, sampling_phase, update_phase
from grpo_zero.train.budget import STEP

NUM_SHOWN = 5
"""Items named, the largest first."""
SMALL_CHUNK = 32
"""Of the vocabulary head: below it hardly anything is saved."""


@contextmanager
def explained(
    config: Config, decoder: Decoder, sizes: Callable[[], TrainingConfig], command: str = "train"
) -> Iterator[None]:
    """Within, memory that runs out for good ends in a ``UserError`` that says where it went.

    Args:
        sizes: the training section as it is by then, with what shortages have lowered.
        command: ``train`` or ``sft``.
    """
    try:
        yield
    except OutOfMemory as error:
        now = replace(config, training=sizes())
        raise UserError(story(error, now, decoder, command)) from error


def story(error: OutOfMemory, config: Config, decoder: Decoder, command: str = "train") -> str:
    """What was going on, where memory goes at the limits of lengths and counts, and what to lower."""
    training, samples = config.training, error.stage == "sampling"
    if samples:
        least = ", with one slot, and there is no less"
    elif error.stage == STEP:
        least = f": {error.cause}, so only the last checkpoint is good"
    else:
        least = (
            f", with micro-batches of {training.micro_batch_tokens} tokens; smaller ones cannot hold the longest answer"
        )
    shown = sorted(where(config, decoder, samples, command).items(), key=lambda item: -item[1])[:NUM_SHOWN]
    items = ", ".join(f"{name} {size / GIB:.2f}" for name, size in shown)
    now, anew = keys(config, decoder, samples)
    advice = f"go on by --resume with {' or '.join(now)}; or start a new run" if now else "start a new run"
    return (
        f"Memory ran out in {error.stage}{least}. By arithmetic it goes, in GiB{_room(decoder.device)}, to {items}. "
        f"To need less, {advice} with {' or '.join(anew)}."
    )


def where(config: Config, decoder: Decoder, samples: bool, command: str = "train") -> dict[str, int]:
    """Bytes on the device by what they are for, in sampling or in the update."""
    training = config.training
    job = job_of(config, decoder.spec, decoder.device.type, command)
    choice = Choice(
        decoder.recompute,
        training.memory_efficient_adamw,
        training.num_slots or training.batch_size,
        training.micro_batch_tokens,
        training.head_chunk_tokens,
    )
    return (sampling_phase if samples else update_phase)(job, choice).device


def keys(config: Config, decoder: Decoder, samples: bool) -> tuple[list[str], list[str]]:
    """Settings that lower the stage's memory: those that a resumed run may change, and those of a new one."""
    training, now = config.training, []
    if not samples and decoder.recompute != "full":
        now.append("training.recompute_activations=full")
    if not samples and training.head_chunk_tokens > SMALL_CHUNK:
        now.append(f"training.head_chunk_tokens={SMALL_CHUNK}")
    if samples and config.evaluation_gen_len > training.max_gen_len:
        now.append(f"evaluation.max_gen_len={training.max_gen_len}")
    if decoder.device.type == "cuda" and not training.memory_efficient_adamw and not config.lora.rank:
        now.append("training.memory_efficient_adamw=true")
    if decoder.device.type == "cpu" and training.reuse_memory:
        now.append("training.reuse_memory=false")
    anew = [f"training.max_gen_len below {training.max_gen_len}"]
    if not config.lora.rank:
        anew += ["training.moment_bits=8"] * (training.moment_bits == 32) + ["lora.rank=32"]
    return now, anew


def _room(device: torch.device) -> str:
    if device.type == "cuda":
        return f" of the GPU's {torch.cuda.mem_get_info(device)[1] / GIB:.1f}"
    free = available_bytes()
    return "" if free is None else f" ({free / GIB:.1f} are free now)"
