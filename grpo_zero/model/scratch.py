"""Memory that one layer after the other writes over, so that the system has not to clear it anew for each."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor


class Scratch:
    """Buffers by name. What was taken is valid until the same name is taken again; only a CPU's are kept.

    On a GPU the caching allocator does as much, and knows about streams.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of this shape with any numbers in it, contiguous, dtype and device as ``like``."""
        if like.device.type != "cpu":
            return like.new_empty(shape)
        size, key = prod(shape), (name, like.dtype)
        if key not in self._buffers or len(self._buffers[key]) < size:
            self._buffers[key] = like.new_empty(size)
        return self._buffers[key][:size].view(shape)

    def clear(self) -> None:
        """Let go of all of it."""
        self._buffers.clear()
