"""An update whose loss or gradient is not finite leaves no trace: weights, moments and every later step are as without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from helpers.tiny import policy_of, random_rows, tiny_decoder
from torch import Tensor

from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.train.optimizer import AdamW, HostAdamW
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

LOSS = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
CONFIG = TrainingConfig(micro_batch_size=2, max_grad_norm=0.05, head_chunk_tokens=4)
OPTIMIZERS: dict[str, Callable[[Decoder], AdamW]] = {
    "plain": lambda decoder: AdamW(decoder.named_parameters(), weight_decay=0.1),
    "states on the host": lambda decoder: AdamW(decoder.named_parameters(), weight_decay=0.1, states_on_host=True),
    "8-bit moments": lambda decoder: AdamW(decoder.named_parameters(), weight_decay=0.1, moment_bits=8),
    "offload": lambda decoder: HostAdamW(decoder.named_parameters(), weight_decay=0.1),
    "offload, 8-bit moments": lambda decoder: HostAdamW(decoder.named_parameters(), weight_decay=0.1, moment_bits=8),
}


def learn(decoder: Decoder, optimizer: AdamW, seed: int, broken: str | None = None) -> dict[str, float]:
    rows = weigh(random_rows(seed, [3, 4]), "token", 9)
    hook = None
    if broken == "loss":
        rows[3] = replace(rows[3], advantage=math.nan)
    elif broken == "infinite loss":
        rows[3] = replace(rows[3], advantage=math.inf)
    elif broken == "gradient":  # one parameter's, in a backward whose loss is fine
        hook = decoder.layers[1].mlp_norm.weight.register_hook(lambda gradient: gradient * math.inf)
    facts = update(policy_of(decoder), optimizer, rows, LOSS, learning_rate=1e-3, config=CONFIG)
    if hook is not None:
        hook.remove()
    return facts


def state(decoder: Decoder, optimizer: AdamW) -> dict[str, Tensor]:
    tensors = dict(decoder.named_parameters()) | optimizer.tensors()
    return {name: x.detach().clone() for name, x in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("broken", ["loss", "infinite loss", "gradient"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_it_changes_no_bit_and_the_next_steps_are_those_without_it(
    make: Callable[[Decoder], AdamW], broken: str, dtype: torch.dtype
) -> None:
    decoder, twin = (tiny_decoder("qwen2").to(dtype) for _ in range(2))
    optimizer, other = make(decoder), make(twin)
    for seed in range(2):
        assert learn(decoder, optimizer, seed)["skipped_updates"] == 0
        learn(twin, other, seed)
    before = state(decoder, optimizer)
    facts = learn(decoder, optimizer, 2, broken)
    assert facts["skipped_updates"] == 1
    assert not math.isfinite(facts["grad_norm"])
    assert math.isfinite(facts["loss"]) == (broken == "gradient")
    assert optimizer.num_steps == 2
    for name, x in state(decoder, optimizer).items():
        assert torch.equal(x, before[name]), name
    assert all(parameter.grad is None for parameter in decoder.parameters())
    for seed in range(3, 5):
        assert learn(decoder, optimizer, seed) == learn(twin, other, seed)
    expected = state(twin, other)
    for name, x in state(decoder, optimizer).items():
        assert torch.equal(x, expected[name]), name
        assert not torch.equal(x, before[name]) or "rest" in name, f"{name} moved again"
