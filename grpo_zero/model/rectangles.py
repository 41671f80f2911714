"""Ragged spans of a packed stream as padded rectangles, and back. Padding exists here and in attention alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.functions import take_rows


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Index of a ragged set of spans as a padded rectangle, and the way back to the stream."""

    gather: Tensor
    """int64 ``[N, length]``: stream index of each slot; padded slots repeat the span's first token."""
    is_real: Tensor
    """bool ``[N, length]``: not padded."""
    is_own: Tensor
    """bool ``[N, length]``: the slot that speaks for its token; of a shared token that of the first row."""
    slots: Tensor
    """int64: flat slot of each token."""
    stream_index: Tensor
    """int64: stream index of each token, in the order of ``slots``."""
    shared: int
    """Tokens at the stream's start with which every row begins."""

    @staticmethod
    def of(starts: np.ndarray, lengths: np.ndarray, device: torch.device, shared: int = 0) -> Rectangle:
        """The spans ``[start, start + length)`` of a stream behind its ``shared`` first tokens, as long as the longest."""
        columns = np.arange(max(shared + int(lengths.max(initial=0)), 1)) - shared
        is_real = columns[None, :] < lengths[:, None]
        gather = np.where(is_real, starts[:, None] + columns[None, :], starts[:, None])
        gather[:, :shared] = np.arange(shared)
        is_own = is_real.copy()
        is_own[1:, :shared] = False
        slots, stream_index = np.flatnonzero(is_own), gather[is_own]
        names = ("gather", "is_real", "is_own", "slots", "stream_index")
        arrays = (gather, is_real, is_own, slots, stream_index)
        tables = {name: torch.from_numpy(array).to(device) for name, array in zip(names, arrays, strict=True)}
        return Rectangle(**tables, shared=shared)

    def lay(self, x_T: Tensor) -> Tensor:
        """``[T, ...] -> [N, length, ...]``; where a gradient is wanted, it flows back to ``x_T``."""
        return _Lay.apply(x_T, self) if torch.is_grad_enabled() else x_T[self.gather]

    def pick(self, x: Tensor) -> Tensor:
        """The tokens' own slots of ``[N, length, ...]``, in the order of ``stream_index``."""
        return x.flatten(0, 1)[self.slots]

    def collect(self, grad: Tensor) -> Tensor:
        """Gradients of the tokens, in the order of ``stream_index``, from those of all their slots ``[N, length, ...]``."""
        picked = self.pick(grad)
        if self.shared:
            picked[: self.shared] = grad[:, : self.shared].sum(0)
        return picked


@dataclass(frozen=True, slots=True)
class Completions:
    """A rectangle whose rows follow prompts, which are laid out in one of their own."""

    rectangle: Rectangle
    prompt_of_N: Tensor
    """int64: row of each completion's prompt."""

    def with_prompt(self, prompt_PKLD: Tensor, x_TKD: Tensor) -> Tensor:
        """Keys or values that completions see: ``[N, K, prompt_max + own_max, D]``."""
        own = self.rectangle.lay(x_TKD).transpose(1, 2)
        return torch.cat((take_rows(prompt_PKLD, self.prompt_of_N), own), dim=2)


class _Lay(torch.autograd.Function):
    """``x_T[gather]`` with a backward that copies instead of accumulating.

    Every token but the shared ones stands in exactly one slot, and the gradient of a padded slot is 0: padded queries are
    dropped, padded keys are hidden from real queries.
    """

    @staticmethod
    def forward(ctx: Any, x_T: Tensor, rectangle: Rectangle) -> Tensor:
        ctx.rectangle, ctx.shape = rectangle, x_T.shape
        return x_T[rectangle.gather]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad_T = grad.new_zeros(ctx.shape)
        grad_T[ctx.rectangle.stream_index] = ctx.rectangle.collect(grad)
        return grad_T, None
