"""Activations computed again in backward instead of being kept (Chen et al., 1604.06174).

What ``torch.utils.checkpoint`` does, without PyTorch's compiler: its import takes 100 MB of memory and seconds. Left out are
autocast, a second backward, and stopping the second forward where nothing more is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def recomputed(function: Callable[[Tensor], Tensor], x: Tensor, draws: bool) -> Tensor:
    """``function(x)``, of which backward finds ``x`` alone and computes the rest again, once.

    Args:
        function: the same values and the same order of work whenever it is called.
        draws: whether it draws random numbers, which must come again.
    """
    states = _rng_states(x.device) if draws else None
    kept: list[Tensor | None] = []
    number = count()

    def keep(tensor: Tensor) -> None:
        kept.append(tensor.detach())

    def find(place: tuple[int, torch.Size]) -> Tensor:
        index, shape = place
        if not kept:
            with _drawing_from(states, x.device), torch.enable_grad(), saved_tensors_hooks(keep, _unused):
                function(x.detach().requires_grad_(x.requires_grad))
        tensor, kept[index] = kept[index], None
        assert tensor is not None, "backward went through a block twice"
        assert tensor.shape == shape, "the second forward was not the first"
        return tensor

    with saved_tensors_hooks(lambda tensor: (next(number), tensor.shape), find):
        return function(x)


def _unused(packed: None) -> Tensor:
    raise AssertionError("there is no backward through a second forward")


States = tuple[Tensor, Tensor | None]
"""Of the CPU's generator, and of the device's own."""


def _rng_states(device: torch.device) -> States:
    """``device`` has an index where there may be several: the current one need not be it."""
    if device.type == "cpu":
        return torch.get_rng_state(), None
    if device.type == "mps":
        return torch.get_rng_state(), torch.mps.get_rng_state()
    return torch.get_rng_state(), torch.cuda.get_rng_state(device)


@contextmanager
def _drawing_from(states: States | None, device: torch.device) -> Iterator[None]:
    """The generators in these states; afterwards as they were."""
    if states is None:
        yield
        return
    before = _rng_states(device)
    _set_rng_states(states, device)
    try:
        yield
    finally:
        _set_rng_states(before, device)


def _set_rng_states(states: States, device: torch.device) -> None:
    cpu, own = states
    torch.set_rng_state(cpu)
    if own is None:
        return
    if device.type == "mps":
        torch.mps.set_rng_state(own)
    else:
        torch.cuda.set_rng_state(own, device)
