"""Hand-written backwards against autograd of the plain twins, and against finite differences in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from helpers.kept import keeping_in
from helpers.tiny import SPECS, tiny_decoder
from torch import Tensor

from grpo_zero.model import functions
from grpo_zero.model.attention import GroupLayout, PackedGroups, packed_positions
from grpo_zero.model.layers import rotary_tables
from grpo_zero.model.scratch import Scratch

TOKENS, WIDTH, FFN, EPS = 5, 6, 7, 1e-5
CPU = torch.device("cpu")
SCRATCH = Scratch()
"""Of all tests, so with the numbers of others in it."""


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def plain_norm(x_TE: Tensor, scale_E: Tensor) -> Tensor:
    wide_TE = x_TE if x_TE.dtype == torch.float64 else x_TE.float()
    return (wide_TE * (wide_TE.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()).to(x_TE.dtype) * scale_E


def plain_mlp(x_TE: Tensor, scale_E: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None) -> Tensor:
    gate_TF, up_TF = F.linear(plain_norm(x_TE, scale_E), w1, b1).chunk(2, dim=-1)
    return F.linear(F.silu(gate_TF) * up_TF, w2, b2)


def plain_turn(x_TND: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
    first, second = x_TND.chunk(2, dim=-1)
    return x_TND * cos_T1D + torch.cat((-second, first), dim=-1) * sin_T1D


def mlp_with(keeps: bool) -> Callable[..., Tensor]:
    return lambda x, scale, *matrices: functions.NormGatedMLP.apply(x, scale, EPS, *matrices, keeps, SCRATCH)


def tables(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    cos, sin = rotary_tables(torch.arange(TOKENS) + 3, torch.tensor([1.0, 0.3, 0.01]), torch.float32)
    return cos.to(dtype), sin.to(dtype)


CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...] | None]]] = {
    "linear": (functions.Linear.apply, F.linear, [(TOKENS, WIDTH), (FFN, WIDTH), (FFN,)]),
    "linear without bias": (
        lambda x, w: functions.Linear.apply(x, w, None),
        F.linear,
        [(TOKENS, WIDTH), (FFN, WIDTH)],
    ),
    "norm, linear": (
        lambda x, scale, w, b: functions.NormLinear.apply(x, scale, EPS, w, b),
        lambda x, scale, w, b: F.linear(plain_norm(x, scale), w, b),
        [(TOKENS, WIDTH), (WIDTH,), (FFN, WIDTH), (FFN,)],
    ),
    **{
        f"norm, mlp, {name}": (
            mlp_with(keeps),
            plain_mlp,
            [(TOKENS, WIDTH), (WIDTH,), (2 * FFN, WIDTH), bias and (2 * FFN,), (WIDTH, FFN), bias and (WIDTH,)],
        )
        for name, keeps, bias in (
            ("kept", True, True),
            ("computed again", False, True),
            ("no bias", True, None),
            ("computed again, no bias", False, None),
        )
    },
    "rotate": (
        lambda x: functions.Rotate.apply(x, *tables(x.dtype)),
        lambda x: plain_turn(x, *tables(x.dtype)),
        [(TOKENS, 2, 6)],
    ),
    "embedding": (
        lambda table: functions.Embedding.apply(torch.tensor([3, 0, 3, 6]), table),
        lambda table: F.embedding(torch.tensor([3, 0, 3, 6]), table),
        [(FFN, WIDTH)],
    ),
}


def arguments(name: str, dtype: torch.dtype) -> list[Tensor | None]:
    return [shape and random(*shape, seed=index, dtype=dtype) for index, shape in enumerate(CASES[name][2])]


@pytest.mark.parametrize("name", CASES)
def test_backward_equals_finite_differences(name: str) -> None:
    function = CASES[name][0]
    assert torch.autograd.gradcheck(function, tuple(arguments(name, torch.float64)))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_the_plain_twins(name: str, dtype: torch.dtype, tolerance: float) -> None:
    """A second backward adds to the first one's gradients, in place or not."""
    results = []
    for function in CASES[name][:2]:
        inputs = arguments(name, dtype)
        for repeat in (1, 2):
            out = function(*inputs)
            out.backward(random(*out.shape, seed=9 + repeat, dtype=dtype).detach())
        assert out.dtype == dtype
        results.append([out.detach(), *(x.grad for x in inputs if x is not None)])
    for found, expected in zip(*results, strict=True):
        scale = expected.abs().max().item()
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", CASES)
def test_frozen_inputs_get_no_gradient(name: str) -> None:
    function = CASES[name][0]
    inputs = arguments(name, torch.float64)
    frozen = [x.detach() if x is not None and index else x for index, x in enumerate(inputs)]
    out = function(*frozen)
    out.sum().backward()
    assert all(x is None or x.grad is None for x in frozen[1:])


def kept_bytes(mode: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that a training forward keeps for backward, weights not counted."""
    decoder = tiny_decoder("qwen2")
    decoder.recompute_activations(mode)
    groups = [GroupLayout(20, (30, 40))]
    positions_T = torch.from_numpy(packed_positions(groups))
    weights = {parameter.untyped_storage().data_ptr() for parameter in decoder.parameters()}
    kept: list[Tensor] = []
    with keeping_in(kept, monkeypatch):
        hidden_TE = decoder(torch.zeros(90, dtype=torch.int64), positions_T, PackedGroups(groups, CPU))
    assert hidden_TE.requires_grad
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in kept}
    return sum(size for pointer, size in storages.items() if pointer not in weights)


def test_each_mode_of_recomputation_keeps_less(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, selective, full = (kept_bytes(mode, monkeypatch) for mode in ("none", "selective", "full"))
    product = 90 * 2 * SPECS["qwen2"].ffn_width * 4 * SPECS["qwen2"].num_layers
    assert kept - selective == product
    assert full < selective / 2
