"""What the running completions have said so far, on the device: one row a slot, no Python per token.

The host keeps who runs where (``scheduler.py``) and how many tokens each has; it reads a row once, when the row has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grpo_zero.rollout.sampler import stop_table, uniform_dtype
from grpo_zero.rollout.scheduler import Move


class Slots:
    """Ids, log-probs, noise and lengths of every slot; running ones are the first.

    Args:
        num_slots, max_new_tokens: rows, and room in each.
        stop_ids: any of them ends a completion.
        vocab_size: V.
        device: of the decoder.
    """

    def __init__(
        self, num_slots: int, max_new_tokens: int, stop_ids: frozenset[int], vocab_size: int, device: torch.device
    ) -> None:
        self.max_new_tokens, self.device = max_new_tokens, device
        self.uniform_dtype = uniform_dtype(device)
        self.ids_ST = torch.zeros(num_slots, max_new_tokens, dtype=torch.int64, device=device)
        self.logprobs_ST = torch.zeros(num_slots, max_new_tokens, dtype=torch.float32, device=device)
        self.uniforms_ST = torch.zeros(num_slots, max_new_tokens, dtype=self.uniform_dtype, device=device)
        self.prompt_lengths_S = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.num_new_S = np.zeros(num_slots, dtype=np.int64)
        """Tokens each completion has; the host's own, so that it never waits for the device to know them."""
        self.is_stop_V = stop_table(stop_ids, vocab_size, device)

    def admit(self, first: int, prompt_lengths: Sequence[int], uniforms_NT: np.ndarray) -> None:
        """Start empty completions in the slots from ``first`` on."""
        rows = slice(first, first + len(prompt_lengths))
        self.prompt_lengths_S[rows] = torch.tensor(prompt_lengths, device=self.device)
        self.uniforms_ST[rows] = torch.from_numpy(uniforms_NT).to(self.device, self.uniform_dtype)
        self.num_new_S[rows] = 0

    def uniforms(self, rows: slice) -> Tensor:
        """The number that decides each row's next token, ``[rows]``."""
        return self.uniforms_ST[rows].gather(1, self._at(rows))[:, 0]

    def record(self, rows: slice, ids_S: Tensor, logprobs_S: Tensor) -> list[int]:
        """Add each row's new token; returns the slots that ended with it."""
        at_S1 = self._at(rows)
        self.ids_ST[rows].scatter_(1, at_S1, ids_S[:, None])
        self.logprobs_ST[rows].scatter_(1, at_S1, logprobs_S[:, None])
        self.num_new_S[rows] += 1
        is_full_S = self.num_new_S[rows] >= self.max_new_tokens
        has_ended_S = self.is_stop_V[ids_S].cpu().numpy() | is_full_S
        return (np.flatnonzero(has_ended_S) + rows.start).tolist()

    def last(self, num_running: int) -> tuple[Tensor, Tensor]:
        """The last token of each running row and its position: what to feed next, int64 ``[n]`` each."""
        rows = slice(0, num_running)
        at_S1 = self._at(rows) - 1
        return self.ids_ST[rows].gather(1, at_S1)[:, 0], self.prompt_lengths_S[rows] + at_S1[:, 0]

    def read(self, slot: int) -> tuple[list[int], list[float]]:
        """Ids and log-probs of one completion."""
        num_new = self.num_new_S[slot]
        return self.ids_ST[slot, :num_new].tolist(), self.logprobs_ST[slot, :num_new].tolist()

    def move(self, moves: Sequence[Move]) -> None:
        """Copy rows of completions that changed slots."""
        for move in moves:
            for rows in (self.ids_ST, self.logprobs_ST, self.uniforms_ST, self.prompt_lengths_S, self.num_new_S):
                rows[move.target] = rows[move.source]

    def _at(self, rows: slice) -> Tensor:
        return torch.from_numpy(self.num_new_S[rows]).to(self.device)[:, None]
