"""AdamW whose small updates do not round away, with states on the device or on the host. One arithmetic in all modes.

bf16 weights keep 8 bits of mantissa: at learning rate 1e-5 most steps are smaller than half a unit in the last place and would
vanish. So a float32 master stands behind every weight. It costs 2 bytes a weight, not 4: the weight itself is the master
rounded to bf16, and an int16 holds the rest, so that ``master bits = (weight bits << 16) + rest``. The rests live in host
memory: for 3.09 G weights they would take 5.8 GiB of a GPU, and they cross the bus only once each way a step.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from grpo_zero.config import TrainingConfig

CHUNK = 2**24
"""Weights stepped at a time where a float32 copy has to be made; bounds the temporary memory to a few times 64 MB."""


def split_master(master: Tensor) -> tuple[Tensor, Tensor]:
    """Float32 master -> (bf16 weight, int16 rest); exact, rounding to nearest with halves up in magnitude."""
    bits = master.view(torch.int32)
    high = (bits + 0x8000) >> 16
    rest = (bits - (high << 16)).to(torch.int16)
    return high.to(torch.int16).view(torch.bfloat16), rest


def join_master(weight: Tensor, rest: Tensor) -> Tensor:
    """The inverse of ``split_master``: bit for bit."""
    return ((weight.view(torch.int16).to(torch.int32) << 16) + rest.to(torch.int32)).view(torch.float32)


class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter, 1711.05101, algorithm 2) on float32 masters and moments.

    Args:
        named_parameters: what to train; float32 or bfloat16.
        betas, weight_decay, eps: as in the paper; weight decay applies to every parameter.
        states_on_host: keep the moments too in main memory and step there (``memory_efficient_adamw``): the device then
            holds weights and gradients alone.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        states_on_host: bool = False,
    ) -> None:
        self.parameters = dict(named_parameters)
        self.betas, self.weight_decay, self.eps = betas, weight_decay, eps
        self.states_on_host = states_on_host
        self.num_steps = 0
        self.states = {name: self._initial_state(p) for name, p in self.parameters.items()}

    def _initial_state(self, parameter: Tensor) -> dict[str, Tensor]:
        weight = parameter.detach()
        device = torch.device("cpu") if self.states_on_host else weight.device
        state = {name: torch.zeros(weight.shape, dtype=torch.float32, device=device) for name in ("moment1", "moment2")}
        if weight.dtype == torch.bfloat16:
            state["rest"] = torch.zeros(weight.shape, dtype=torch.int16, device="cpu")
        return state

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update from the parameters' ``.grad``; a parameter without one is left alone."""
        self.num_steps += 1
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                self._step_parameter(parameter, parameter.grad, self.states[name], learning_rate)

    def _step_parameter(self, parameter: Tensor, grad: Tensor, state: dict[str, Tensor], learning_rate: float) -> None:
        device = state["moment1"].device
        weight, grad = parameter.detach().view(-1), grad.reshape(-1)
        in_place = weight.dtype == torch.float32 and weight.device == device
        size = weight.numel() if in_place else CHUNK
        for start in range(0, weight.numel(), size):
            part = slice(start, start + size)
            moments = [state[name].view(-1)[part] for name in ("moment1", "moment2")]
            here = weight[part].to(device)
            master = (
                here if weight.dtype == torch.float32 else join_master(here, state["rest"].view(-1)[part].to(device))
            )
            self._adamw(master, grad[part].to(device, torch.float32), moments, learning_rate)
            if weight.dtype == torch.float32:
                if not in_place:
                    weight[part] = master.to(weight.device)
                continue
            rounded, rest = split_master(master)
            weight[part] = rounded.to(weight.device)
            state["rest"].view(-1)[part] = rest.to("cpu")

    def _adamw(self, master: Tensor, grad: Tensor, moments: list[Tensor], learning_rate: float) -> None:
        step = torch.tensor(float(self.num_steps - 1), device=master.device)
        adamw(
            [master],
            [grad],
            [moments[0]],
            [moments[1]],
            [],
            [step],
            fused=master.device.type in ("cpu", "cuda"),
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )

    def zero_grad(self) -> None:
        """Drop all gradients; their memory is free while sampling."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Every state tensor, by ``parameter/state``: the live ones, to be saved or filled."""
        return {f"{name}/{key}": x for name, state in self.states.items() for key, x in state.items()}


def make_optimizer(decoder: nn.Module, training: TrainingConfig) -> AdamW:
    """The configured optimizer over all weights."""
    return AdamW(
        decoder.named_parameters(),
        betas=training.betas,
        weight_decay=training.weight_decay,
        states_on_host=training.memory_efficient_adamw,
    )
