"""Part (b) of the GPU suite: which models one full-parameter GRPO step fits under which memory cap."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpu_models import SHAPES, Load, policy_of, random_decoder, random_prompts, rows_of

from grpo_zero.bench.floors import seconds
from grpo_zero.config import TrainingConfig
from grpo_zero.model.spec import ModelSpec
from grpo_zero.observe.memory import available_bytes
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.policy import set_recompute
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

HOST_BYTES = {32: 4 + 2 + 8, 8: 4 + 2 + 2.1}
"""Main memory a weight by moment bits: sum of gradients, rest of the master, moments."""
ROOM = 1.15
"""Main memory to have for each byte of states."""
MOST_FOR_32_BITS = 4_000_000_000
"""Weights. With more, 100 GB of states would be touched for the first time, which takes minutes."""
NUM_SAMPLES = 4


def moment_bits(spec: ModelSpec) -> int | None:
    """What offloaded states of such a model can have here; None where main memory holds neither."""
    left = available_bytes()
    for bits, size in HOST_BYTES.items():
        is_quick = bits == 8 or spec.num_parameters <= MOST_FOR_32_BITS
        if is_quick and (left is None or ROOM * size * spec.num_parameters < left):
            return bits
    return None


def measure(device: torch.device, shape: str, cap_gib: int, load: Load) -> Iterator[dict[str, object]]:
    """One record: ``fits``, ``peak_gib`` allocated, seconds of sampling and update; ``skipped`` where main memory is short.

    The cap is on PyTorch's allocator; a CUDA context takes about half a GiB beside it. Times are of a process's first step.
    """
    spec = SHAPES[shape]
    record: dict[str, object] = {"part": "memory", "shape": shape, "cap_gib": cap_gib}
    bits = moment_bits(spec)
    if bits is None:
        needed = ROOM * HOST_BYTES[8] * spec.num_parameters / 2**30
        yield record | {"skipped": f"main memory is short: 8-bit states take {needed:.0f} GiB"}
        return
    record["moment_bits"] = bits
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap_gib * 2**30 / total), device)
    try:
        times = _step(device, shape, bits, load)
    except torch.OutOfMemoryError as error:
        yield record | {"fits": False, "error": str(error).splitlines()[0]}
        return
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    yield record | {"fits": True, "peak_gib": round(peak / 2**30, 2), **times}


def _step(device: torch.device, shape: str, moment_bits: int, load: Load) -> dict[str, float]:
    decoder = random_decoder(SHAPES[shape], device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    # By default a GPU computes activations again.
    config = TrainingConfig(memory_efficient_adamw=True, moment_bits=moment_bits, micro_batch_tokens=4096)
    set_recompute(decoder, config)
    optimizer = make_optimizer(decoder, config)
    prompts = random_prompts(load.num_prompts, load.prompt_tokens, decoder.spec.vocab_size)
    engine, params, found = Engine(decoder, frozenset(), None), SamplingParams(load.new_tokens), []
    sample_s = seconds(lambda: found.extend(engine.generate(prompts, NUM_SAMPLES, params)), device)
    rows = weigh(rows_of(prompts, found), "token", load.new_tokens)
    loss = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
    update_s = seconds(lambda: update(policy_of(decoder), optimizer, rows, loss, 1e-6, config), device)
    return {"sample_s": round(sample_s, 2), "update_s": round(update_s, 2)}
