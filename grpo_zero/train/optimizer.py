"""AdamW whose small updates do not round away, with states on the device or on the host. One arithmetic in all modes.

Moments are kept in float32 or in 8 bits (``train/moments.py``), gradients where backward leaves them.

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
from grpo_zero.train.moments import new_moments, parts, read_moments, write_moments

DEVICE_CHUNK, HOST_CHUNK = 2**22, 2**20
"""Weights stepped at a time where copies have to be made, on a GPU and on a CPU. Bounds temporary memory to a dozen times 16 MB
and 4 MB, whatever the parameter: a GPU is asked less often, a CPU's cache holds more of it."""


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
    """Adam with decoupled weight decay (Loshchilov & Hutter, 1711.05101, algorithm 2) on float32 masters.

    Args:
        named_parameters: what to train; float32 or bfloat16.
        betas, weight_decay, eps: as in the paper; weight decay applies to every parameter.
        states_on_host: keep the moments too in main memory and step there (``memory_efficient_adamw``): the device then
            holds weights and gradients alone.
        moment_bits: 32, or 8 for a quarter of the moments' memory.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        states_on_host: bool = False,
        moment_bits: int = 32,
    ) -> None:
        self.parameters = dict(named_parameters)
        self.betas, self.weight_decay, self.eps = betas, weight_decay, eps
        self.states_on_host, self.moment_bits = states_on_host, moment_bits
        self.num_steps = 0
        self.states = {name: self._initial_state(p) for name, p in self.parameters.items()}

    def _initial_state(self, parameter: Tensor) -> dict[str, Tensor]:
        weight = parameter.detach()
        device = torch.device("cpu") if self.states_on_host else weight.device
        state = new_moments(weight.shape, self.moment_bits, device)
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
        in_place = weight.dtype == torch.float32 and weight.device == device and self.moment_bits == 32
        chunk = HOST_CHUNK if device.type == "cpu" else DEVICE_CHUNK
        for part in parts(weight.numel(), weight.numel() if in_place else chunk):
            here = weight[part].to(device)
            stepped = self._step_part(here, grad[part].to(device, torch.float32), state, part, learning_rate)
            if not in_place:
                weight[part] = stepped.to(weight.device)

    def _step_part(
        self, weight: Tensor, grad: Tensor, state: dict[str, Tensor], part: slice, learning_rate: float
    ) -> Tensor:
        """Step a part of a parameter, all of it on the moments' device, and its state.

        Args:
            weight: its present values, flat; float32 ones are overwritten.
            grad: float32, flat.

        Returns:
            Its new values, in its own dtype.
        """
        moments = read_moments(state, part)
        if weight.dtype == torch.float32:
            master = weight
        else:
            rest = state["rest"].view(-1)[part]
            master = join_master(weight, rest.to(weight.device))
        self._adamw(master, grad, moments, learning_rate)
        write_moments(state, part, moments, self.num_steps)
        if weight.dtype == torch.float32:
            return master
        rounded, new_rest = split_master(master)
        rest.copy_(new_rest)
        return rounded

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
        moment_bits=training.moment_bits,
    )
