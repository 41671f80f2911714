"""Completions being sampled, as a grid ``[P prompts, C columns]`` of cells whose whole state lives in fixed device buffers.

A cell is running, or ended (frozen: it computes on, and what it says is written behind its end, where nobody reads), or was
never used, which is the same. So a step has fixed shapes, asks the host nothing, and can be captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout.cache import PromptStore
from grpo_zero.rollout.request import Request
from grpo_zero.rollout.sampler import sample, stop_table, uniform_dtype


@dataclass(frozen=True, slots=True)
class Shape:
    """What a step computes: the first ``num_prompts * num_columns`` cells."""

    num_prompts: int
    num_columns: int
    own_max: int
    """Own tokens that attention reads, at least as many as any running cell has."""

    @property
    def num_cells(self) -> int:
        return self.num_prompts * self.num_columns


class Grid:
    """The buffers. Cell ``row * num_columns + column`` belongs to the prompt in grid row ``row``.

    Args:
        num_prompts, num_columns: largest grid.
        prompt_max: longest prompt, tokens.
    """

    def __init__(self, decoder: Decoder, request: Request, num_prompts: int, num_columns: int, prompt_max: int) -> None:
        spec, device, dtype = decoder.spec, decoder.device, decoder.embedding.weight.dtype
        self.decoder, self.request, self.device = decoder, request, device
        self.num_prompts, self.num_columns = num_prompts, num_columns
        self.own_max = own_max = request.params.max_new_tokens
        cells = num_prompts * num_columns
        own = (spec.num_layers, cells, spec.num_kv_heads, own_max, spec.head_size)
        prompt = (spec.num_layers, num_prompts, spec.num_kv_heads, prompt_max, spec.head_size)
        self.own_keys_LSKTD = torch.empty(own, dtype=dtype, device=device)
        # Zeros: places not yet written get weight 0, and 0 times what `empty` finds in memory may be NaN.
        self.own_values_LSKTD = torch.zeros(own, dtype=dtype, device=device)
        self.prompt_keys_LPKTD = torch.empty(prompt, dtype=dtype, device=device)
        self.prompt_values_LPKTD = torch.zeros(prompt, dtype=dtype, device=device)
        self.prompt_lengths_P = torch.zeros(num_prompts, dtype=torch.int64, device=device)
        self.uniform_dtype = uniform_dtype(device)
        # One column more: a full completion has a place behind its end too.
        self.ids_ST = torch.zeros(cells, own_max + 1, dtype=torch.int64, device=device)
        self.logprobs_ST = torch.zeros(cells, own_max + 1, dtype=torch.float32, device=device)
        self.uniforms_ST = torch.zeros(cells, own_max + 1, dtype=self.uniform_dtype, device=device)
        self.last_ids_S = torch.zeros(cells, dtype=torch.int64, device=device)
        self.num_new_S = torch.ones(cells, dtype=torch.int64, device=device)
        """Tokens each cell's completion has, at least the first."""
        self.has_ended_S = torch.ones(cells, dtype=torch.bool, device=device)
        self.cells_S = torch.arange(cells, device=device)
        self.columns_T = torch.arange(max(own_max, prompt_max), device=device)
        self.is_stop_V = stop_table(request.stop_ids, spec.vocab_size, device)

    def seat_prompt(self, row: int, store: PromptStore, position: int) -> None:
        """Put a prefilled prompt into a grid row."""
        length = store.lengths[position]
        for layer, (keys_P, values_P) in enumerate(zip(store.keys_LP, store.values_LP, strict=True)):
            self.prompt_keys_LPKTD[layer, row, :, :length] = keys_P[position]
            self.prompt_values_LPKTD[layer, row, :, :length] = values_P[position]
        self.prompt_lengths_P[row] = length

    def admit(self, cells: Sequence[int], logits_NV: Tensor, uniforms_NT: np.ndarray) -> None:
        """Start completions in ``cells``: their first tokens, from the logits of their prompts."""
        at_N = torch.tensor(cells, device=self.device)
        uniforms = torch.from_numpy(uniforms_NT).to(self.device, self.uniform_dtype)
        self.uniforms_ST[at_N, : self.own_max] = uniforms
        ids_N, logprobs_N = sample(logits_NV, uniforms[:, 0], self.request.params, self.request.has_token_V)
        self.ids_ST[at_N, 0], self.logprobs_ST[at_N, 0], self.last_ids_S[at_N] = ids_N, logprobs_N, ids_N
        self.num_new_S[at_N] = 1
        self.has_ended_S[at_N] = self.is_stop_V[ids_N] | (self.own_max == 1)

    def step(self, shape: Shape) -> None:
        """One more token for every running cell of ``shape``. Nothing here waits for the device or depends on its values."""
        n = shape.num_cells
        num_new_S, has_ended_S, last_ids_S = self.num_new_S[:n], self.has_ended_S[:n], self.last_ids_S[:n]
        prompt_lengths_S = self.prompt_lengths_P[: shape.num_prompts].repeat_interleave(
            shape.num_columns, output_size=n
        )
        attend = _GridAttention(self, shape)
        hidden_SE = self.decoder(last_ids_S, prompt_lengths_S + num_new_S - 1, attend)
        at_S1 = num_new_S[:, None]  # of an ended cell: behind its end, the same place again and again
        uniforms_S = self.uniforms_ST[:n].gather(1, at_S1)[:, 0]
        logits_SV = self.decoder.logits(hidden_SE)
        ids_S, logprobs_S = sample(logits_SV, uniforms_S, self.request.params, self.request.has_token_V)
        self.ids_ST[:n].scatter_(1, at_S1, ids_S[:, None])
        self.logprobs_ST[:n].scatter_(1, at_S1, logprobs_S[:, None])
        last_ids_S.copy_(ids_S)
        num_new_S.add_(~has_ended_S)
        has_ended_S.logical_or_(self.is_stop_V[ids_S] | (num_new_S >= self.own_max))

    def poll(self, num_cells: int) -> tuple[np.ndarray, np.ndarray]:
        """``(num_new_S, has_ended_S)`` as the host's own; waits for the device."""
        both = torch.stack((self.num_new_S[:num_cells], self.has_ended_S[:num_cells].long())).cpu().numpy()
        return both[0], both[1].astype(bool)

    def read(self, cells: Sequence[int], num_new_S: np.ndarray) -> list[tuple[list[int], list[float]]]:
        """Ids and log-probs of the completions in ``cells``."""
        at_N = torch.tensor(cells, device=self.device)
        rows = zip(cells, self.ids_ST[at_N].cpu(), self.logprobs_ST[at_N].cpu(), strict=True)
        return [(ids_T[: num_new_S[cell]].tolist(), x_T[: num_new_S[cell]].tolist()) for cell, ids_T, x_T in rows]

    def move(self, prompt_rows: Sequence[int], cells: Sequence[int]) -> None:
        """Make the grid smaller: new row i is old row ``prompt_rows[i]``, new cell j old cell ``cells[j]``.

        Layer by layer, so that the copies need little room; old cells may lie anywhere.
        """
        rows_P = torch.tensor(prompt_rows, device=self.device)
        cells_N = torch.tensor(cells, device=self.device)
        for keys_PKTD, values_PKTD in zip(self.prompt_keys_LPKTD, self.prompt_values_LPKTD, strict=True):
            for buffer in (keys_PKTD, values_PKTD):
                buffer[: len(prompt_rows)] = buffer[rows_P]
        for keys_SKTD, values_SKTD in zip(self.own_keys_LSKTD, self.own_values_LSKTD, strict=True):
            for buffer in (keys_SKTD, values_SKTD):
                buffer[: len(cells)] = buffer[cells_N]
        self.prompt_lengths_P[: len(prompt_rows)] = self.prompt_lengths_P[rows_P]
        states = (self.ids_ST, self.logprobs_ST, self.uniforms_ST, self.last_ids_S, self.num_new_S, self.has_ended_S)
        for state in states:
            state[: len(cells)] = state[cells_N]


class _GridAttention:
    """The ``attend`` of one step: the queries of a grid row meet its prompt together, each cell its own keys alone."""

    def __init__(self, grid: Grid, shape: Shape) -> None:
        self.grid, self.shape = grid, shape
        self.cells_S, self.at_S = grid.cells_S[: shape.num_cells], grid.num_new_S[: shape.num_cells] - 1
        grid_PC = (shape.num_prompts, shape.num_columns, 1, 1)
        prompt_max = grid.prompt_keys_LPKTD.shape[3]
        hidden_own = grid.columns_T[: shape.own_max] > self.at_S[:, None]
        hidden_prompt = (
            grid.columns_T[:prompt_max] >= grid.prompt_lengths_P[: shape.num_prompts, None, None, None, None]
        )
        self.hidden_PC11T = torch.cat(
            (hidden_prompt.expand(*grid_PC, -1), hidden_own.view(*grid_PC, shape.own_max)), dim=-1
        )

    def __call__(self, layer: int, q_SHD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
        grid, num_prompts, num_columns = self.grid, self.shape.num_prompts, self.shape.num_columns
        own_keys, own_values = grid.own_keys_LSKTD[layer], grid.own_values_LSKTD[layer]
        own_keys[self.cells_S, :, self.at_S] = k_SKD
        own_values[self.cells_S, :, self.at_S] = v_SKD
        k_own, v_own = (x[: self.shape.num_cells, :, : self.shape.own_max] for x in (own_keys, own_values))
        prompt_keys, prompt_values = grid.prompt_keys_LPKTD[layer], grid.prompt_values_LPKTD[layer]
        k_prompt, v_prompt = prompt_keys[:num_prompts], prompt_values[:num_prompts]
        q_SKQD = q_SHD.unflatten(1, (k_SKD.shape[1], -1))
        share = q_SKQD.shape[2]

        def by_prompt(x_PCKQX: Tensor) -> Tensor:  # [P, K, C * share, X]
            return x_PCKQX.transpose(1, 2).flatten(2, 3)

        def by_cell(x_PKNX: Tensor) -> Tensor:  # the inverse
            return x_PKNX.unflatten(2, (num_columns, share)).transpose(1, 2)

        shared = by_cell(scores(by_prompt(q_SKQD.unflatten(0, (num_prompts, num_columns))), k_prompt))
        own = scores(q_SKQD, k_own).unflatten(0, (num_prompts, num_columns))
        all_PCKQT = torch.cat((shared, own), dim=-1).mul_(q_SHD.shape[-1] ** -0.5)
        weights = all_PCKQT.masked_fill_(self.hidden_PC11T, -torch.inf).softmax(-1).to(v_own.dtype)
        prompt_max = k_prompt.shape[2]
        out_PCKQD = by_cell(_product(by_prompt(weights[..., :prompt_max]), v_prompt))
        out_SKQD = _product(weights[..., prompt_max:].flatten(0, 1), v_own) + out_PCKQD.flatten(0, 1)
        return out_SKQD.flatten(1, 2)


def scores(q_BKQD: Tensor, k_BKTD: Tensor) -> Tensor:
    """``q k^T`` in float32, ``[B, K, Q, T]``; large scores rounded to bf16 would shift the weights.

    A GPU multiplies bf16 and hands out the float32 sums; elsewhere the operands are widened first.
    """
    q, k_transposed = q_BKQD.flatten(0, 1), k_BKTD.flatten(0, 1).transpose(-1, -2)
    if q.dtype != torch.float32 and q.device.type == "cuda":
        out = torch.bmm(q, k_transposed, out_dtype=torch.float32)
    else:
        out = torch.bmm(q.float(), k_transposed.float())
    return out.unflatten(0, q_BKQD.shape[:2])


def _product(x_BKQT: Tensor, y_BKTD: Tensor) -> Tensor:
    return torch.bmm(x_BKQT.flatten(0, 1), y_BKTD.flatten(0, 1)).unflatten(0, x_BKQT.shape[:2])
