"""The floors count what a decoder really multiplies: PyTorch's own counter judges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.tiny import SPECS, policy_of, tiny_decoder
from torch.utils.flop_counter import FlopCounterMode

from grpo_zero.bench.floors import (
    Group,
    Peaks,
    decode_floor,
    measure_peaks,
    optimizer_floor,
    prefill_floor,
    update_floor,
)
from grpo_zero.model.attention import DenseCausal
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.train.batch import TrainRow, pack
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import backward

SPEC = SPECS["llama"]
"""Without biases, which no counter counts."""
NORMS = 0.03
"""Share of norm weights in this small model; floors count them as weights of a product."""


def counted(work: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def forward(num_tokens: int) -> None:
    decoder = tiny_decoder("llama")
    positions = torch.arange(num_tokens)
    with torch.no_grad():
        decoder.logits(decoder(positions, positions, DenseCausal())[-1:])


def test_prefill() -> None:
    assert prefill_floor(SPEC, [Group(1, [])], Peaks(1.0, 1.0)) == pytest.approx(counted(lambda: forward(1)), rel=NORMS)
    ours = prefill_floor(SPEC, [Group(9, [])], Peaks(1.0, 1.0))
    unseen = (
        4 * SPEC.num_layers * SPEC.num_heads * SPEC.head_size * (9 * 9 - 9 * 10 // 2)
    )  # which the dense twin computes
    assert ours + unseen == pytest.approx(counted(lambda: forward(9)), rel=NORMS)


@pytest.mark.parametrize("shared", [0, 2])
def test_update(shared: int) -> None:
    prompts = [[3, 4, 5], [3, 4, 6] if shared else [4, 3, 6]]
    rows = [
        TrainRow(group, prompt, list(range(length)), 1.0, [-1.0] * length, weight=0.1)
        for group, prompt in enumerate(prompts)
        for length in (2, 3)
    ]
    loss = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
    decoder = tiny_decoder("llama")
    real = counted(lambda: backward(policy_of(decoder), pack(rows, torch.device("cpu")), loss, 1.0, 256))
    ours = update_floor(SPEC, [Group(3, [2, 3]), Group(3, [2, 3], shared)], Peaks(1.0, 1.0))
    assert ours <= real * (1 + NORMS)
    assert ours == pytest.approx(real, rel=0.1)  # attention computes rectangles


def test_what_prompts_share_is_prefilled_once() -> None:
    apart, shared = (prefill_floor(SPEC, [Group(9, []), Group(7, [], n)], Peaks(1.0, 1.0)) for n in (0, 4))
    one, none = (prefill_floor(SPEC, [Group(n, [])] * 2, Peaks(1.0, 1.0)) / 2 for n in (4, 0))
    assert apart - shared == pytest.approx(one - none)


def test_decode_reads_or_multiplies_whichever_takes_longer() -> None:
    groups = [Group(5, [3, 1]), Group(4, [2])]
    products = SPEC.num_parameters - SPEC.vocab_size * SPEC.width  # untied: the input table is looked up
    kv = 2 * SPEC.num_layers * SPEC.num_kv_heads * SPEC.head_size
    reading = 4 * (2 * products + kv * ((5 + 1) + (4 + 1) + (5 + 2)))
    assert decode_floor(SPEC, groups, Peaks(1e30, 1.0), 4) == pytest.approx(reading)
    heads = 4 * SPEC.num_layers * SPEC.num_heads * SPEC.head_size
    multiplying = 2 * products * 3 + heads * ((5 + 1) + (4 + 1) + (5 + 2))
    assert decode_floor(SPEC, groups, Peaks(1.0, 1e30), 4) == pytest.approx(multiplying)
    assert decode_floor(SPEC, [Group(5, [1, 1])], Peaks(1.0, 1.0), 4) == 0.0


def test_optimizer_moves_what_adamw_holds() -> None:
    assert optimizer_floor(SPEC, Peaks(1.0, 1.0), 4, 4) == 28 * SPEC.num_parameters
    assert optimizer_floor(SPEC, Peaks(1.0, 1.0), 2, 1) == 14 * SPEC.num_parameters


def test_peaks_are_those_of_a_machine() -> None:
    peaks = measure_peaks(torch.device("cpu"), torch.float32, size=256, read_bytes=2**24)
    assert 1e8 < peaks.product_flops < 1e14
    assert 1e8 < peaks.read_bytes < 1e13
