"""8-bit moments: round trips within bounds, averages that follow, steps near those of the float32 twin and never far above."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from grpo_zero.train import optimizer as optimizer_module
from grpo_zero.train.moments import (
    BLOCK,
    dequantise_signed,
    dequantise_unsigned,
    dither,
    new_moments,
    parts,
    quantise_signed,
    quantise_unsigned,
    read_moments,
    write_moments,
)
from grpo_zero.train.optimizer import AdamW

CPU = torch.device("cpu")
NUM = 5 * BLOCK + 44


def dithers(num_weights: int, step: int = 3) -> Tensor:
    return dither(slice(0, -(-num_weights // BLOCK)), step * 0.618034, CPU)


def round_trip(values: Tensor, *, signed: bool, step: int = 3) -> Tensor:
    quantise, dequantise = (quantise_signed, dequantise_signed) if signed else (quantise_unsigned, dequantise_unsigned)
    codes, scale_N = quantise(values, dithers(values.numel(), step))
    assert codes.dtype == (torch.int8 if signed else torch.uint8)
    return dequantise(codes, scale_N)


def noise(num_weights: int, spread: float, seed: int = 0) -> Tensor:
    """Normal numbers whose sizes differ by ``exp(spread)`` from weight to weight."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.exp(spread * torch.randn(num_weights, generator=generator))
    return sizes * torch.randn(num_weights, generator=generator)


@pytest.mark.parametrize("signed", [True, False])
def test_a_value_becomes_a_neighbouring_level(signed: bool) -> None:
    """The bound is the distance of neighbouring levels, from the formulas; the largest of a block is exact."""
    values = noise(NUM, 2.0) if signed else noise(NUM, 2.0).square()
    found = round_trip(values, signed=signed)
    for block, found_block in zip(values.split(BLOCK), found.split(BLOCK), strict=True):
        scale = block.abs().max().item()
        largest = block.abs().argmax()
        assert found_block[largest] == block[largest]
        highest, offset, power = (127, 0, 4) if signed else (255, 6, 8)
        levels = scale * ((torch.arange(highest + 1.0) + offset) / (highest + offset)) ** power
        lower = (levels[:, None] <= block.abs() * (1 + 1e-5)).sum(0).sub(1).clamp(0, highest - 1)
        low, high = levels[lower], levels[lower + 1]
        magnitude = found_block.abs()
        assert torch.isclose(magnitude, low, rtol=1e-4).logical_or(torch.isclose(magnitude, high, rtol=1e-4)).all()
        assert (found_block.sign() == block.sign()).logical_or(found_block == 0).all()


def test_zero_stays_zero_and_nothing_else_becomes_zero() -> None:
    zeros = torch.zeros(NUM)
    mixed = torch.full((BLOCK,), 1e3)
    mixed[::2], mixed[1::4] = 0.0, 1e-30
    for signed in (True, False):
        assert torch.equal(round_trip(zeros, signed=signed), zeros)
        assert (round_trip(mixed, signed=signed)[::2] == 0).all()
    second = round_trip(mixed, signed=False)
    assert (second[1::4] > 0).all()
    assert (second[3::4] == 1e3).all()


@pytest.mark.parametrize("scale", [1e-36, 1.0, 1e36])
def test_scales_at_both_ends_of_float32(scale: float) -> None:
    for signed in (True, False):
        assert torch.equal(round_trip(torch.tensor([scale, 0.0]), signed=signed), torch.tensor([scale, 0.0]))


def test_dither_is_even_and_does_not_depend_on_the_chunk() -> None:
    """Of a weight over steps and of a step over weights: each tenth of [0, 1) gets a tenth of the numbers."""
    over_steps = torch.stack([dithers(NUM, step)[1, 7] for step in range(1000)])
    for numbers in (over_steps, dithers(4096)):
        counts = torch.histc(numbers, bins=10, min=0, max=1)
        torch.testing.assert_close(counts, torch.full((10,), numbers.numel() / 10), rtol=0.1, atol=0)
    assert torch.equal(dither(slice(2, 4), 0.3, CPU), dither(slice(0, 9), 0.3, CPU)[2:4])


def test_a_second_moment_comes_down_when_gradients_stop() -> None:
    """Half of a block gets no gradient any more: 0.999^2000 = 0.135 of its second moment is left. Rounding to the nearest, which
    the brackets hold against it, would leave all of it."""
    state, part = new_moments(torch.Size([BLOCK]), 8, CPU), slice(0, BLOCK)
    moments = [torch.zeros(BLOCK), torch.ones(BLOCK)]
    write_moments(state, part, moments, 0)
    stuck = torch.ones(BLOCK)
    for step in range(1, 2001):
        moments = read_moments(state, part)
        moments[1].mul_(0.999)[::2] += 0.001
        write_moments(state, part, moments, step)
        stuck.mul_(0.999)[::2] += 0.001
        stuck = dequantise_unsigned(*quantise_unsigned(stuck, torch.full((1, BLOCK), 0.5)))
    left = read_moments(state, part)[1]
    assert left[1::2].mean().item() == pytest.approx(0.999**2000, rel=0.15)
    torch.testing.assert_close(left[::2], torch.ones(128), rtol=1e-4, atol=0)
    assert (stuck[1::2] > 0.9).all()


def updates(bits: int, grads: list[Tensor]) -> Tensor:
    """Each step's change of weights that start at 0, in learning rates: ``[steps, weights]``."""
    weight = nn.Parameter(torch.zeros_like(grads[0]))
    optimizer = AdamW([("w", weight)], moment_bits=bits)
    changes = []
    for grad in grads:
        before = weight.detach().clone()
        weight.grad = grad
        optimizer.step(1.0)
        changes.append(weight.detach() - before)
    return torch.stack(changes)


@pytest.mark.parametrize(
    ("spread", "noise_bound", "excess_bound"), [(0.3, 0.08, 0.3), (1.0, 0.12, 1.0), (3.0, 0.5, 5.0)]
)
def test_steps_are_near_those_of_float32_and_never_explode(
    spread: float, noise_bound: float, excess_bound: float
) -> None:
    """Gradient sizes within a block differ by e^spread; 3.0 is a factor of a million between the ends.

    ``noise_bound``: root mean square error of a step over that of the steps. ``excess_bound``: learning rates by which any step
    of any weight is larger than the twin's largest.
    """
    sizes = noise(NUM, spread, seed=1).abs()
    grads = [sizes * (noise(NUM, 0.0, seed=10 + step) + 0.2) for step in range(300)]
    ours, twin = updates(8, grads), updates(32, grads)
    error = (ours - twin).square().mean().sqrt() / twin.square().mean().sqrt()
    assert error < noise_bound
    assert ours.abs().max() < twin.abs().max() + excess_bound
    way, twin_way = ours.sum(0), twin.sum(0)
    assert torch.nn.functional.cosine_similarity(way, twin_way, dim=0) > (0.99 if spread <= 1 else 0.95)
    assert 0.95 < way.norm() / twin_way.norm() < 1.1


def test_thirty_decades_in_one_block_make_no_step_larger_than_float32s() -> None:
    sizes = torch.logspace(-30, 3, BLOCK)
    grads = [sizes * noise(BLOCK, 0.0, seed=step) for step in range(50)]
    ours, twin = updates(8, grads), updates(32, grads)
    assert ours.isfinite().all()
    assert ours.abs().max() < 2 * twin.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_least_squares_problem_is_learned_as_well(dtype: torch.dtype) -> None:
    """Equal within 5 % of the float32 twin's remaining loss, both far under the first one."""
    generator = torch.Generator().manual_seed(0)
    inputs, truth = torch.randn(512, 40, generator=generator), torch.randn(40, 30, generator=generator)
    targets = inputs @ truth + 0.1 * torch.randn(512, 30, generator=generator)
    losses = {}
    for bits in (8, 32):
        weight = nn.Parameter(torch.zeros(40, 30, dtype=dtype))
        optimizer = AdamW([("w", weight)], moment_bits=bits)
        for step in range(300):
            rows = torch.arange(64) + 64 * (step % 8)
            loss = (inputs[rows] @ weight.float() - targets[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step(0.1 * 0.98**step)
        losses[bits] = (inputs @ weight.detach().float() - targets).square().mean().item()
    assert losses[32] < 0.02
    assert losses[8] == pytest.approx(losses[32], rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("states_on_host", [False, True])
def test_chunks_change_nothing(dtype: torch.dtype, states_on_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for chunk in (2 * BLOCK, 2**20):
        monkeypatch.setattr(optimizer_module, "HOST_CHUNK", chunk)
        weight = nn.Parameter(noise(NUM, 0.0).to(dtype))
        optimizer = AdamW([("w", weight)], moment_bits=8, states_on_host=states_on_host)
        for step in range(5):
            weight.grad = noise(NUM, 1.0, seed=step).to(dtype)
            optimizer.step(1e-2)
        ends.append({"w": weight.detach(), **optimizer.tensors()})
    for name, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][name]), name


def test_parts_cover_a_parameter_once() -> None:
    assert parts(700, 256) == [slice(0, 256), slice(256, 512), slice(512, 700)]
    assert parts(512, 256) == [slice(0, 256), slice(256, 512)]


def test_bytes_a_weight() -> None:
    """1 + 4 / 256 a moment, and nothing else."""
    optimizer = AdamW([("w", nn.Parameter(torch.zeros(64, 4 * BLOCK)))], moment_bits=8)
    num_bytes = sum(x.numel() * x.element_size() for x in optimizer.tensors().values())
    assert num_bytes / (64 * 4 * BLOCK) == 2 * (1 + 4 / 256)
