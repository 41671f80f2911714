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
    """bool ``[N, length]``."""
    slots: Tensor
    """int64: flat slot of each real token."""
    stream_index: Tensor
    """int64: stream index of each real token, in the order of ``slots``."""

    @staticmethod
    def of(starts: np.ndarray, lengths: np.ndarray, device: torch.device) -> Rectangle:
        """The spans ``[start, start + length)`` of a stream, as long as the longest."""
        columns = np.arange(max(int(lengths.max(initial=0)), 1))
        is_real = columns[None, :] < lengths[:, None]
        gather = np.where(is_real, starts[:, None] + columns[None, :], starts[:, None])
        tables = (gather, is_real, np.flatnonzero(is_real), gather[is_real])
        return Rectangle(*(torch.from_numpy(table).to(device) for table in tables))

    def lay(self, x_T: Tensor) -> Tensor:
        """``[T, ...] -> [N, length, ...]``; where a gradient is wanted, it flows back to ``x_T``."""
        return _Lay.apply(x_T, self) if torch.is_grad_enabled() else x_T[self.gather]

    def pick(self, x: Tensor) -> Tensor:
        """The real slots of ``[N, length, ...]``, in the order of ``stream_index``."""
        return x.flatten(0, 1)[self.slots]


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

    Every real token stands in exactly one slot, and the gradient of a padded slot is 0: padded queries are dropped, padded keys
    are hidden from real queries.
    """

    @staticmethod
    def forward(ctx: Any, x_T: Tensor, rectangle: Rectangle) -> Tensor:
        ctx.rectangle, ctx.shape = rectangle, x_T.shape
        return x_T[rectangle.gather]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad_T = grad.new_zeros(ctx.shape)
        grad_T[ctx.rectangle.stream_index] = ctx.rectangle.pick(grad)
        return grad_T, None
