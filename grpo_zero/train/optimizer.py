"""AdamW whose small updates do not round away, with states on the device or on the host. One arithmetic in all modes.

Moments are kept in float32 or in 8 bits (``train/moments.py``). ``AdamW`` steps from the gradients that backward leaves in the
parameters; ``HostAdamW`` has them leave the device at once (``train/offload.py``), and its plain twin is ``AdamW`` with states on
the host.

bf16 weights keep 8 bits of mantissa: at learning rate 1e-5 most steps are smaller than half a unit in the last place and would
vanish. So a float32 master stands behind every weight. It costs 2 bytes a weight, not 4: the weight itself is the master
rounded to bf16, and an int16 holds the rest, so that ``master bits = (weight bits << 16) + rest``. The rests live in host
memory: for 3.09 G weights they would take 5.8 GiB of a GPU, and they cross the bus only once each way a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from grpo_zero.allocator import LARGEST_KEPT_BYTES
from grpo_zero.config import TrainingConfig
from grpo_zero.train.moments import new_moments, parts, read_moments, write_moments
from grpo_zero.train.offload import HostGradients, Staging

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
        states_on_host: keep the moments too in main memory and step there: the device then holds weights and gradients alone.
        moment_bits: 32, or 8 for a quarter of the moments' memory.
        reuse_memory: keep the memory of gradients that malloc would not keep, for those of the next update.
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
        reuse_memory: bool = False,
    ) -> None:
        self.reuse_memory = reuse_memory
        self.parameters = dict(named_parameters)
        self.betas, self.weight_decay, self.eps = betas, weight_decay, eps
        self.states_on_host, self.moment_bits = states_on_host, moment_bits
        self.num_steps = 0
        self.divisor = 1.0
        """Of gradients in the step, from clipping."""
        self.states = {name: self._initial_state(p) for name, p in self.parameters.items()}

    def _initial_state(self, parameter: Tensor) -> dict[str, Tensor]:
        weight = parameter.detach()
        device = torch.device("cpu") if self.states_on_host else weight.device
        state = new_moments(weight.shape, self.moment_bits, device)
        if weight.dtype == torch.bfloat16:
            state["rest"] = torch.zeros(weight.shape, dtype=torch.int16, device="cpu")
        return state

    def begin(self) -> None:
        """Before the first backward of an update: no gradients."""
        self.zero_grad()

    def gather(self) -> None:
        """After each micro-batch's backward: gradients add up where they are."""

    def clip(self, max_norm: float) -> float:
        """The norm of all gradients, in float32 whatever their dtype; where it is above ``max_norm`` the step, which reads them
        anyway, scales them down to it."""
        total = total_norm(self._gradients())
        self.divisor = total / max_norm if total > max_norm else 1.0
        return total

    def _gradients(self) -> Iterable[Tensor]:
        return (parameter.grad for parameter in self.parameters.values() if parameter.grad is not None)

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
        is_fused = master.device.type in ("cpu", "cuda")
        grad_scale = None
        if self.divisor != 1.0 and is_fused:
            grad_scale = torch.tensor(self.divisor, device=master.device)
        elif self.divisor != 1.0:
            grad = grad / self.divisor
        adamw(
            [master],
            [grad],
            [moments[0]],
            [moments[1]],
            [],
            [step],
            fused=is_fused,
            grad_scale=grad_scale,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )

    def zero_grad(self) -> None:
        """Drop all gradients; their memory is free while sampling, but for what is kept to be used again."""
        self.divisor = 1.0
        for parameter in self.parameters.values():
            if self.reuse_memory and parameter.grad is not None and parameter.grad.nbytes > LARGEST_KEPT_BYTES:
                parameter.spare_gradient = parameter.grad  # type: ignore[attr-defined]
            parameter.grad = None

    def drop(self) -> None:
        """Give up an update that an error broke off: no gradients, as before ``begin``."""
        self.zero_grad()

    def tensors(self) -> dict[str, Tensor]:
        """Every state tensor, by ``parameter/state``: the live ones, to be saved or filled."""
        return {f"{name}/{key}": x for name, state in self.states.items() for key, x in state.items()}


class HostAdamW(AdamW):
    """AdamW for a device that has no room for gradients: they, the moments and the arithmetic are the host's.

    The device holds the weights and the gradients that are on their way: 2 bytes a weight in bf16. Main memory takes 4 bytes a
    weight for the sums of gradients beside the states. Saved states are those of ``AdamW``.
    """

    def __init__(self, named_parameters: Iterable[tuple[str, torch.nn.Parameter]], **settings: Any) -> None:
        super().__init__(named_parameters, states_on_host=True, **settings)
        largest = max(parameter.numel() for parameter in self.parameters.values())
        device = next(iter(self.parameters.values())).device
        self.staging = Staging(device, min(HOST_CHUNK, largest))
        self.gradients = HostGradients(self.parameters, self.staging)

    def begin(self) -> None:
        """Before the first backward of an update: no gradients, and those to come are caught until ``clip`` or ``step``."""
        self.zero_grad()
        self.gradients.begin()

    def gather(self) -> None:
        """After each micro-batch's backward: send off the gradients that were written by hand, as the vocabulary head's is."""
        self.gradients.gather()

    def clip(self, max_norm: float) -> float:
        """As of ``AdamW``, once the last gradients have come."""
        self.gradients.end()
        return super().clip(max_norm)

    def _gradients(self) -> Iterable[Tensor]:
        return self.gradients.values().values()

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update from the gradients caught; while a part is stepped, the next comes and the one before goes back."""
        self.gradients.end()
        self.num_steps += 1
        weights = {name: self.parameters[name].detach().view(-1) for name in self.gradients.values()}
        pieces = [(name, part) for name, x in weights.items() for part in parts(x.numel(), self.staging.chunk)]
        downloads = self.staging.downloads((weights[name][part] for name, part in pieces), self.staging.mark())
        for (name, part), staged in zip(pieces, downloads, strict=True):
            grad = self.gradients.sums[name][part]
            stepped = self._step_part(staged.wait(), grad, self.states[name], part, learning_rate)
            if stepped is not staged.values:
                staged.values.copy_(stepped)
            self.staging.upload(staged, weights[name][part])
        self.staging.finish()

    def zero_grad(self) -> None:
        """Drop all gradients."""
        super().zero_grad()
        self.gradients.forget()

    def drop(self) -> None:
        """Give up an update that an error broke off, whichever thread met it."""
        self.gradients.drop()
        self.zero_grad()


def total_norm(grads: Iterable[Tensor]) -> float:
    """Norm of all gradients together, in float32; 0 without any. In pieces, as a CPU adds long rows up one after the other."""
    pieces = [piece for grad in grads for piece in grad.reshape(-1).split(HOST_CHUNK)]
    squares = [_squared_norm(piece) for piece in pieces]
    return torch.stack(squares).sum().sqrt().item() if squares else 0.0


def _squared_norm(x: Tensor) -> Tensor:
    """In float32, a scalar. A CPU's ``dot`` reads memory at its full rate, ``vector_norm`` at a third of it."""
    if x.device.type == "cpu" and x.dtype == torch.float32:
        return torch.dot(x, x)
    return torch.linalg.vector_norm(x, dtype=torch.float32).square()


def make_optimizer(decoder: nn.Module, training: TrainingConfig) -> AdamW:
    """The configured optimizer over what is trained: all weights, or the adapters."""
    is_host = training.memory_efficient_adamw
    trained = [(name, parameter) for name, parameter in decoder.named_parameters() if parameter.requires_grad]
    return (HostAdamW if is_host else AdamW)(
        trained,
        betas=training.betas,
        weight_decay=training.weight_decay,
        moment_bits=training.moment_bits,
        # A GPU's allocator keeps them anyway, and the host's are no tensors of the parameters.
        reuse_memory=training.reuse_memory and not is_host and trained[0][1].device.type == "cpu",
    )
