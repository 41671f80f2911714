"""AdamW: equal to torch's in float32, and in bf16 equal to a float32 master, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from grpo_zero.train import optimizer as optimizer_module
from grpo_zero.train.optimizer import AdamW, join_master, split_master

SHAPES = {"table": (7, 5), "norm": (5,)}


def parameters(dtype: torch.dtype, seed: int = 0) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: nn.Parameter((0.02 * torch.randn(shape, generator=generator)).to(dtype)) for name, shape in SHAPES.items()
    }


def gradients(dtype: torch.dtype, step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    return {name: (torch.randn(shape, generator=generator) + 0.5).to(dtype) for name, shape in SHAPES.items()}


def run(optimizer: AdamW, steps: range, learning_rate: float = 1e-3) -> None:
    for step in steps:
        for name, gradient in gradients(next(iter(optimizer.parameters.values())).dtype, step).items():
            optimizer.parameters[name].grad = gradient
        optimizer.step(learning_rate)
        optimizer.zero_grad()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_float32_equals_torchs_adamw(weight_decay: float) -> None:
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    optimizer = AdamW(ours.items(), betas=(0.9, 0.99), weight_decay=weight_decay)
    reference = torch.optim.AdamW(theirs.values(), lr=1e-3, betas=(0.9, 0.99), weight_decay=weight_decay)
    for step in range(20):
        run(optimizer, range(step, step + 1))
        for name, gradient in gradients(torch.float32, step).items():
            theirs[name].grad = gradient
        reference.step()
        for name in SHAPES:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-6, atol=1e-8)


def test_splitting_a_master_is_exact() -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (300_000,), generator=generator).to(torch.int32)
    special = [0.0, -0.0, 1e-45, -1e-45, 1.17e-38, -1.17e-38, 3.4028234e38, -3.4028234e38, math.inf, -math.inf, 1.0]
    halves = torch.tensor([0x3F808000, 0x3F818000, -0x407F8000, 0x00008000, 0x3F807FFF, 0x3F808001], dtype=torch.int32)
    master = torch.cat((bits.view(torch.float32), torch.tensor(special), halves.view(torch.float32)))
    master = master[~master.isnan()]
    weight, rest = split_master(master)
    assert (weight.dtype, rest.dtype) == (torch.bfloat16, torch.int16)
    assert torch.equal(join_master(weight, rest).view(torch.int32), master.view(torch.int32))
    # The weight is a nearest bf16: never farther from the master than torch's own rounding.
    finite = master[master.abs() < 3.3e38]
    ours, theirs = split_master(finite)[0].double(), finite.bfloat16().double()
    assert ((ours - finite.double()).abs() <= (theirs - finite.double()).abs()).all()


def test_bf16_weights_follow_the_float32_master_exactly() -> None:
    ours, masters = parameters(torch.bfloat16), parameters(torch.bfloat16)
    masters = {name: nn.Parameter(p.detach().float()) for name, p in masters.items()}
    optimizer, reference = AdamW(ours.items(), weight_decay=0.01), AdamW(masters.items(), weight_decay=0.01)
    for step in range(30):
        for name, gradient in gradients(torch.bfloat16, step).items():
            ours[name].grad, masters[name].grad = gradient, gradient.float()
        optimizer.step(1e-6)
        reference.step(1e-6)
        for name in SHAPES:
            joined = join_master(ours[name].detach(), optimizer.states[name]["rest"])
            assert torch.equal(joined, masters[name].detach())


def test_small_updates_do_not_round_away() -> None:
    """N08: at 1e-6 a step is a hundredth of a bf16 unit in the last place of a weight of 0.02."""
    start = 0.02 * torch.randn(4000, generator=torch.Generator().manual_seed(0)).bfloat16()
    ours, plain = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer, reference = AdamW([("w", ours)]), torch.optim.AdamW([plain], lr=1e-6, weight_decay=0.0)
    for _ in range(30):
        ours.grad = plain.grad = torch.ones_like(start)
        optimizer.step(1e-6)
        reference.step()
    moved, moved_plain = (p.detach().ne(start).float().mean().item() for p in (ours, plain))
    assert moved > 0.3
    assert moved_plain < 0.15, "the comparison would show nothing"
    joined = join_master(ours.detach(), optimizer.states["w"]["rest"])
    torch.testing.assert_close(joined - start.float(), torch.full((4000,), -3e-5), rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk", [16, 2**24])  # whole vectors: a part's tail is rounded as the tensor's own
def test_states_on_the_host_change_nothing(dtype: torch.dtype, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = parameters(dtype), parameters(dtype)
    on_device = AdamW(there.items())
    run(on_device, range(10))
    monkeypatch.setattr(optimizer_module, "HOST_CHUNK", chunk)
    on_host = AdamW(here.items(), states_on_host=True)
    run(on_host, range(10))
    assert {x.device.type for state in on_host.states.values() for x in state.values()} == {"cpu"}
    for name in SHAPES:
        assert torch.equal(there[name], here[name])
        for key, tensor in on_device.states[name].items():
            assert torch.equal(tensor, on_host.states[name][key])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_and_loaded_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    whole, first = parameters(dtype), parameters(dtype)
    unbroken = AdamW(whole.items())
    run(unbroken, range(10))
    before = AdamW(first.items())
    run(before, range(6))
    second = {name: nn.Parameter(p.detach().clone()) for name, p in first.items()}
    after = AdamW(second.items())
    for name, tensor in after.tensors().items():
        tensor.copy_(before.tensors()[name])
    after.num_steps = before.num_steps
    run(after, range(6, 10))
    assert after.num_steps == 10
    for name in SHAPES:
        assert torch.equal(whole[name], second[name])


def test_states_are_float32_and_bf16_has_a_rest() -> None:
    state = AdamW(parameters(torch.bfloat16).items()).states["norm"]
    assert {key: x.dtype for key, x in state.items()} == {
        "moment1": torch.float32,
        "moment2": torch.float32,
        "rest": torch.int16,
    }
    assert AdamW(parameters(torch.float32).items()).states["norm"].keys() == {"moment1", "moment2"}


def test_a_parameter_without_gradient_is_left_alone() -> None:
    ours = parameters(torch.float32)
    optimizer = AdamW(ours.items(), weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in ours.items()}
    ours["table"].grad = torch.ones(7, 5)
    optimizer.step(0.1)
    assert torch.equal(ours["norm"], before["norm"])
    assert not torch.equal(ours["table"], before["table"])
    optimizer.zero_grad()
    assert ours["table"].grad is None
