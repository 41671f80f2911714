"""Keys and values of the completions being sampled: prompts once per question, own tokens per slot.

Decoding attends to both in two products and one softmax: the queries of a question's completions meet the shared prompt keys
together (as in Hydragen, 2402.05099, section 3), each completion its own keys alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.attention import GroupLayout, PackedGroups
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.spec import ModelSpec
from grpo_zero.rollout.scheduler import Move


def bytes_per_slot(spec: ModelSpec, max_new_tokens: int, dtype: torch.dtype) -> int:
    """Bytes of keys and values one running completion can come to hold."""
    return 2 * spec.num_layers * spec.num_kv_heads * spec.head_size * max_new_tokens * dtype.itemsize


class PromptStore:
    """An ``attend`` that prefills prompts and keeps their keys and values, ``[K, length, D]`` a layer and prompt."""

    def __init__(self, lengths: Sequence[int], device: torch.device, shared: int = 0) -> None:
        """``lengths``: of the whole prompts; the ``shared`` tokens that all begin with stand once, before them."""
        self.lengths, self.shared = list(lengths), shared
        self.attend = PackedGroups([GroupLayout(length - shared, ()) for length in lengths], device, shared)
        self.keys_LP: list[list[Tensor]] = []
        self.values_LP: list[list[Tensor]] = []

    def __call__(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        self.keys_LP.append(self._by_prompt(k_TKD))
        self.values_LP.append(self._by_prompt(v_TKD))
        return self.attend(layer, q_THD, k_TKD, v_TKD)

    def _by_prompt(self, x_TKD: Tensor) -> list[Tensor]:
        """Keys or values ``[K, length, D]`` of each prompt, in memory of their own: ``x_TKD`` is a view of more."""
        shared_TKD, *own = x_TKD.split([self.shared, *(length - self.shared for length in self.lengths)])
        return [torch.cat((shared_TKD, own_TKD)).transpose(0, 1) for own_TKD in own]


class SlotCache:
    """Own keys and values of every slot, and the prompts that the running completions share.

    Used as the decoder's ``attend``: one new token a running slot, in slot order.

    Args:
        spec, dtype, device: of the decoder.
        num_slots: rows to make room for.
        max_new_tokens: room per row, tokens.
    """

    def __init__(
        self, spec: ModelSpec, num_slots: int, max_new_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_layers = spec.num_layers
        shape = (spec.num_layers, num_slots, spec.num_kv_heads, max_new_tokens, spec.head_size)
        self.keys_LSKTD = torch.empty(shape, dtype=dtype, device=device)
        # Zeros: places not yet written get weight 0, and 0 times what `empty` finds in memory may be NaN.
        self.values_LSKTD = torch.zeros(shape, dtype=dtype, device=device)
        self.active: list[int] = []
        self.prompts: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self.device = device
        self.scale = spec.head_size**-0.5

    def add_prompt(self, prompt_index: int, store: PromptStore, position: int) -> None:
        """Keep one prefilled prompt for the completions of ``prompt_index``."""
        layers = range(self.num_layers)
        keys = [store.keys_LP[layer][position] for layer in layers]
        self.prompts[prompt_index] = (keys, [store.values_LP[layer][position] for layer in layers])

    def move(self, moves: Sequence[Move]) -> None:
        """Copy rows of completions that changed slots."""
        for move in moves:
            self.keys_LSKTD[:, move.target] = self.keys_LSKTD[:, move.source]
            self.values_LSKTD[:, move.target] = self.values_LSKTD[:, move.source]

    def seat(self, prompt_of_slot: Sequence[int]) -> None:
        """Say which prompt each running slot answers; call again whenever that changes.

        Prompts that no slot answers any more are dropped. The shared prompts are laid out as one rectangle, and the slots as a
        grid ``[prompts, most slots of one prompt]``.
        """
        active = sorted(set(prompt_of_slot))
        lengths = [self.prompts[index][0][0].shape[1] for index in active]
        if active != self.active:
            self.prompts = {index: self.prompts[index] for index in active}
            self.active = active
            layers = range(self.num_layers)
            self.prompt_keys_LPKTD = [self._stack([self.prompts[p][0][layer] for p in active]) for layer in layers]
            self.prompt_values_LPKTD = [self._stack([self.prompts[p][1][layer] for p in active]) for layer in layers]
        is_real = np.arange(max(lengths))[None, :] < np.array(lengths)[:, None]
        row_of = {index: row for row, index in enumerate(active)}
        rows_S = np.array([row_of[index] for index in prompt_of_slot])
        order_S = np.argsort(rows_S, kind="stable")
        starts = np.searchsorted(rows_S[order_S], np.arange(len(active)))
        columns_S = np.empty_like(rows_S)
        columns_S[order_S] = np.arange(len(rows_S)) - starts[rows_S[order_S]]
        grid = np.zeros((len(active), int(columns_S.max()) + 1), dtype=np.int64)
        grid[rows_S, columns_S] = np.arange(len(rows_S))
        self.grid = torch.from_numpy(grid).to(self.device)
        self.flat_cell_S = torch.from_numpy(rows_S * grid.shape[1] + columns_S).to(self.device)
        hidden = torch.from_numpy(~is_real[rows_S]).to(self.device)
        self.prompt_hidden_S1T = None if is_real.all() else hidden[:, None, None, :]

    def _stack(self, tensors_KTD: list[Tensor]) -> Tensor:
        length = max(x.shape[1] for x in tensors_KTD)
        num_kv, _, head_size = tensors_KTD[0].shape
        out = tensors_KTD[0].new_zeros(len(tensors_KTD), num_kv, length, head_size)
        for row, x in enumerate(tensors_KTD):
            out[row, :, : x.shape[1]] = x
        return out

    def logits(self, decoder: Decoder, tokens_S: Tensor, positions_S: Tensor, lengths_S: np.ndarray) -> Tensor:
        """Logits ``[S, V]`` of each running slot's next token, after ``tokens_S``, one new token a slot, joined the cache.

        Args:
            positions_S: of the tokens, each in its own sequence.
            lengths_S: own tokens each slot holds already.
        """
        self.begin_step(lengths_S)
        return decoder.logits(decoder(tokens_S, positions_S, self))

    def begin_step(self, lengths_S: np.ndarray) -> None:
        """Announce the next token: ``lengths_S`` own tokens each running slot already holds."""
        self.num_running, shortest = len(lengths_S), int(lengths_S.min())
        self.own_max = int(lengths_S.max()) + 1
        self.write_at: tuple[Tensor | slice | int, ...] = (slice(self.num_running), slice(None), shortest)
        self.own_hidden_S1T: Tensor | None = None
        if shortest + 1 < self.own_max:
            at_S = torch.from_numpy(lengths_S).to(self.device)
            self.write_at = (torch.arange(self.num_running, device=self.device), slice(None), at_S)
            columns_T = torch.arange(self.own_max, device=self.device)
            self.own_hidden_S1T = (columns_T > at_S[:, None])[:, None, None, :]

    def __call__(self, layer: int, q_SHD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
        n = self.num_running
        keys, values = self.keys_LSKTD[layer], self.values_LSKTD[layer]
        keys[self.write_at] = k_SKD
        values[self.write_at] = v_SKD
        k_own, v_own = keys[:n, :, : self.own_max], values[:n, :, : self.own_max]
        k_prompt, v_prompt = self.prompt_keys_LPKTD[layer], self.prompt_values_LPKTD[layer]

        q_SKQD = q_SHD.float().unflatten(1, (k_SKD.shape[1], -1)) * self.scale
        share = q_SKQD.shape[2]
        # Scores in float32, as fused attention keeps them: large ones rounded to bf16 would shift the weights.
        own = torch.matmul(q_SKQD, k_own.float().transpose(-1, -2))
        q_PKQD = q_SKQD[self.grid].transpose(1, 2).flatten(2, 3)
        shared = self._to_slots(torch.matmul(q_PKQD, k_prompt.float().transpose(-1, -2)), share)
        if self.own_hidden_S1T is not None:
            own.masked_fill_(self.own_hidden_S1T, -torch.inf)
        if self.prompt_hidden_S1T is not None:
            shared = shared.masked_fill(self.prompt_hidden_S1T, -torch.inf)
        weights = torch.cat((shared, own), dim=-1).softmax(-1).to(v_own.dtype)
        prompt_max = k_prompt.shape[2]
        weights_PKQT = weights[..., :prompt_max][self.grid].transpose(1, 2).flatten(2, 3)
        out_SKQD = self._to_slots(torch.matmul(weights_PKQT, v_prompt), share)
        out_SKQD = out_SKQD + torch.matmul(weights[..., prompt_max:], v_own)
        return out_SKQD.flatten(1, 2)

    def _to_slots(self, x_PKQX: Tensor, share: int) -> Tensor:
        """``[P, K, cells * share, X]`` back to ``[S, K, share, X]``."""
        x = x_PKQX.unflatten(2, (-1, share)).transpose(1, 2)
        return x.flatten(0, 1)[self.flat_cell_S]
