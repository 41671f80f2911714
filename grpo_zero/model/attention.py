"""Who looks at whom, without a cache: one plain sequence, dense masks (the judge) and packed groups.

A packed stream is ``[shared | group | group | ...]``; a group is one prompt and its completions, ``[prompt | y_1 | y_2 | ...]``,
and the shared tokens are what all prompts begin with, often a system message. A completion's token sees the whole prompt and
its own past, nothing of its siblings, and its position goes on from the prompt's end. Padding exists inside the attention
product alone; the linear layers never see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from grpo_zero.model.compact_attention import CompactAttention
from grpo_zero.model.rectangles import Completions, Rectangle


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Lengths of one group of a packed stream, in tokens."""

    prompt_length: int
    """Without the tokens that all prompts of the stream share."""
    completion_lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return self.prompt_length + sum(self.completion_lengths)


def shared_length(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all of several prompts begin with and a stream holds once; the last token of each stays its own."""
    if len(prompts) < 2:
        return 0
    rows = [list(prompt[:-1]) for prompt in prompts]
    first, last = min(rows), max(rows)  # what these two have in common stands in all between
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def packed_positions(groups: Sequence[GroupLayout], shared: int = 0) -> np.ndarray:
    """Position of each token of the stream in its own sequence, int64 ``[T]``."""
    parts = [np.arange(shared)]
    for group in groups:
        parts.append(shared + np.arange(group.prompt_length))
        parts += [shared + group.prompt_length + np.arange(n) for n in group.completion_lengths]
    return np.concatenate(parts)


def dense_mask(groups: Sequence[GroupLayout], shared: int = 0) -> np.ndarray:
    """The packed rule spelled out, bool ``[T, T]``: ``[i, j]`` says whether token i sees token j."""
    num_tokens = shared + sum(group.num_tokens for group in groups)
    mask_TT = np.zeros((num_tokens, num_tokens), dtype=bool)
    mask_TT[:shared, :shared] = np.tri(shared, dtype=bool)
    mask_TT[shared:, :shared] = True
    start = shared
    for group in groups:
        prompt = slice(start, start + group.prompt_length)
        mask_TT[prompt, prompt] = np.tri(group.prompt_length, dtype=bool)
        start = prompt.stop
        for length in group.completion_lengths:
            own = slice(start, start + length)
            mask_TT[own, prompt] = True
            mask_TT[own, own] = np.tri(length, dtype=bool)
            start = own.stop
    return mask_TT


class DenseMask:
    """The slow twin of every other ``attend``: one explicit mask over all pairs of tokens, softmax in float32."""

    def __init__(self, mask_TT: Tensor) -> None:
        self.mask_TT = mask_TT

    def __call__(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        share = q_THD.shape[1] // k_TKD.shape[1]
        k_THD, v_THD = (x.repeat_interleave(share, dim=1) for x in (k_TKD, v_TKD))
        scores_HTT = torch.einsum("thd,shd->hts", q_THD, k_THD).float() * q_THD.shape[-1] ** -0.5
        weights_HTT = scores_HTT.masked_fill(~self.mask_TT, -torch.inf).softmax(-1)
        return torch.einsum("hts,shd->thd", weights_HTT.to(v_THD.dtype), v_THD)


class DenseCausal:
    """One plain sequence: every token sees itself and its past."""

    def __call__(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        num_tokens = q_THD.shape[0]
        mask_TT = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=q_THD.device).tril()
        return DenseMask(mask_TT)(layer, q_THD, k_TKD, v_TKD)


class PackedGroups:
    """Attention over a packed stream: prompts among themselves once, then completions over (their prompt, own past).

    Two fused products a layer, whatever the number of groups. Prompts stand left-aligned in ``[P, prompt_max]``, each with what
    all share, completions in ``[N, own_max]`` with keys ``[prompt_max + own_max]``. A completion's heads that share a key head
    are folded into the query axis, so its keys are not repeated.

    Args:
        groups: layout of the stream, in order; completions may be of length 0.
        device: where the index tables live.
        shared: tokens at the stream's start with which every prompt begins.
        is_compact: keep the stream alone for backward (``compact_attention.py``), not the rectangles; None = on a CPU.
    """

    def __init__(
        self, groups: Sequence[GroupLayout], device: torch.device, shared: int = 0, is_compact: bool | None = None
    ) -> None:
        self.is_compact = device.type == "cpu" if is_compact is None else is_compact
        prompt_lengths = np.array([group.prompt_length for group in groups])
        group_starts = np.cumsum([shared] + [group.num_tokens for group in groups[:-1]])
        self.prompts = Rectangle.of(group_starts, prompt_lengths, device, shared)
        spans = [
            (index, group_starts[index] + group.prompt_length + sum(group.completion_lengths[:c]), n)
            for index, group in enumerate(groups)
            for c, n in enumerate(group.completion_lengths)
            if n > 0
        ]
        self.own: Completions | None = None
        self._masks: dict[tuple[int, torch.dtype], Tensor] = {}
        stream_index = self.prompts.stream_index
        if spans:
            prompt_of_N, starts_N, lengths_N = (np.array(column) for column in zip(*spans, strict=True))
            own, rows_N = Rectangle.of(starts_N, lengths_N, device), torch.from_numpy(prompt_of_N).to(device)
            self.own = Completions(own, rows_N)
            own_max = own.gather.shape[1]
            sees_prompt = self.prompts.is_real[rows_N][:, None, :].expand(-1, own_max, -1)
            causal = torch.ones(own_max, own_max, dtype=torch.bool, device=device).tril()
            # A padded key is later than every real query, so the causal part hides it.
            self.mask_N = torch.cat((sees_prompt, causal.expand(len(spans), -1, -1)), dim=-1)[:, None]
            stream_index = torch.cat((stream_index, own.stream_index))
        self.stream_index = stream_index
        """Where each output belongs in the stream: outputs come as all prompts, then all completions."""

    def mask(self, share: int, dtype: torch.dtype) -> Tensor:
        """0 where seen and minus infinity elsewhere, ``[N, 1, share * own_max, prompt_max + own_max]``.

        Made once: it is the same in every layer, and a bool mask would be turned into this one in each.
        """
        if (share, dtype) not in self._masks:
            hidden_N = ~self.mask_N.repeat(1, 1, share, 1)
            self._masks[share, dtype] = torch.zeros_like(hidden_N, dtype=dtype).masked_fill_(hidden_N, -torch.inf)
        return self._masks[share, dtype]

    def __call__(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        if self.is_compact and torch.is_grad_enabled():
            mask = None if self.own is None else self.mask(q_THD.shape[1] // k_TKD.shape[1], q_THD.dtype)
            return CompactAttention.apply(self.prompts, self.own, mask, q_THD, k_TKD, v_TKD)
        num_heads, num_kv_heads = q_THD.shape[1], k_TKD.shape[1]
        q, k_prompt, v_prompt = (self.prompts.lay(x).transpose(1, 2) for x in (q_THD, k_TKD, v_TKD))
        out = F.scaled_dot_product_attention(
            q, k_prompt, v_prompt, is_causal=True, enable_gqa=num_heads != num_kv_heads
        )
        parts = [self.prompts.pick(out.transpose(1, 2))]
        if self.own is not None:
            share, own = num_heads // num_kv_heads, self.own.rectangle
            q = own.lay(q_THD).transpose(1, 2).unflatten(1, (-1, share)).flatten(2, 3)
            k, v = self.own.with_prompt(k_prompt, k_TKD), self.own.with_prompt(v_prompt, v_TKD)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(share, q.dtype))
            out = out.unflatten(2, (share, -1)).flatten(1, 2)
            parts.append(own.pick(out.transpose(1, 2)))
        return torch.empty_like(q_THD).index_copy(0, self.stream_index, torch.cat(parts))
