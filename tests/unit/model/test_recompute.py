"""What is computed again in backward against what is kept."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_zero.model.recompute import _drawing_from, _rng_states, recomputed


class Part(nn.Module):
    """Two products with dropout between them; counts its forwards."""

    def __init__(self, draws: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 5)
        self.draws, self.num_forwards = draws, 0

    def forward(self, x: Tensor) -> Tensor:
        self.num_forwards += 1
        return self.second(F.dropout(self.first(x).tanh(), 0.5, self.draws)).sigmoid()


def gradients(part: Part, is_recomputed: bool, x_needs_gradient: bool) -> list[Tensor | None]:
    torch.manual_seed(2)
    x = torch.randn(3, 5, requires_grad=x_needs_gradient)
    out = x
    for _ in range(2):  # a stream through two of them
        out = recomputed(part, out, part.draws) if is_recomputed else part(out)
    after = torch.rand(4)
    torch.manual_seed(3)  # backward draws from the states of forward, not from this one, and leaves it as it was
    state = torch.get_rng_state()
    out.square().sum().backward()
    assert torch.equal(torch.get_rng_state(), state)
    return [out.detach(), after, x.grad, *(parameter.grad for parameter in part.parameters())]


@pytest.mark.parametrize("x_needs_gradient", [True, False])
@pytest.mark.parametrize("draws", [True, False])
def test_gradients_are_those_of_what_is_kept(draws: bool, x_needs_gradient: bool) -> None:
    plain, again = Part(draws), Part(draws)
    expected, found = gradients(plain, False, x_needs_gradient), gradients(again, True, x_needs_gradient)
    assert (plain.num_forwards, again.num_forwards) == (2, 4)
    for x, y in zip(expected, found, strict=True):
        assert (x is None and y is None) or (x is not None and y is not None and torch.equal(x, y))


def test_another_second_forward_is_found_out() -> None:
    sizes = iter((4, 3))

    def changing(x: Tensor) -> Tensor:
        return x[: next(sizes)].exp()

    out = recomputed(changing, torch.randn(5, requires_grad=True), False)
    with pytest.raises(AssertionError, match="not the first"):
        out.sum().backward()


def test_the_device_whose_generator_draws_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current one need not be that of the model."""
    named: list[torch.device] = []
    state = torch.get_rng_state()
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: (named.append(device), state)[1])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: named.append(device))
    device = torch.device("cuda:1")
    with _drawing_from(_rng_states(device), device):
        pass
    assert named == [device] * 4


def test_one_backward_alone() -> None:
    out = recomputed(Part(False), torch.randn(3, 5, requires_grad=True), False).sum()
    out.backward(retain_graph=True)
    with pytest.raises(AssertionError, match="twice"):
        out.backward()


STEP = """
import sys
from grpo_zero.bench.step import Bench
from grpo_zero.bench.workloads import workload_config
settings = ["model.device=cpu", "training.num_questions_per_batch=1", "training.batch_size=2", "training.max_gen_len=4"]
Bench(workload_config("quickstart", None, [*settings, *SETTINGS])).step(0)
print(sorted({"sympy", "torch._dynamo", "torch._inductor"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    "settings",
    [
        ["training.recompute_activations=none"],
        ["training.recompute_activations=full", "training.moment_bits=8"],
        ["training.recompute_activations=full", "training.memory_efficient_adamw=true"],
        ["training.recompute_activations=full", "lora.rank=4", "lora.dropout=0.1"],
    ],
    ids=["plain", "8 bit", "offload", "LoRA"],
)
def test_a_step_leaves_pytorchs_compiler_out(settings: list[str]) -> None:
    """It is not used, and its import takes 100 MB and seconds."""
    program = [sys.executable, "-c", STEP.replace("SETTINGS", repr(settings))]
    assert subprocess.run(program, check=True, capture_output=True, text=True).stdout.splitlines()[-1] == "[]"
