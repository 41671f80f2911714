"""Prompts, each computed once: keys and values for the completions to come, logits for their first token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.attention import GroupLayout, packed_positions
from grpo_zero.model.decoder import Decoder
from grpo_zero.observe.phases import phase
from grpo_zero.rollout.cache import PromptStore

PREFILL_TOKENS = {"cuda": 8192, "mps": 2048, "cpu": 2048}
"""Prompts are prefilled in streams of at most this many tokens, a longer one alone; working memory grows with them."""

Keep = Callable[[int, PromptStore, int], None]
"""Takes (index, store, position in the store) of each prompt."""


@phase("prefill")
def prefill(
    decoder: Decoder, indices: Sequence[int], prompts: Sequence[Sequence[int]], keep: Keep
) -> dict[int, Tensor]:
    """Compute ``prompts[index]`` for each of ``indices``, and return the logits ``[V]`` of each one's last token."""
    logits: dict[int, Tensor] = {}
    device = decoder.device
    for batch in _by_tokens(indices, prompts, PREFILL_TOKENS[device.type]):
        lengths = [len(prompts[p]) for p in batch]
        store = PromptStore(lengths, device)
        tokens_T = torch.tensor([token for p in batch for token in prompts[p]], device=device)
        positions = packed_positions([GroupLayout(length, ()) for length in lengths])
        hidden_TE = decoder(tokens_T, torch.from_numpy(positions).to(device), store)
        last = torch.tensor(np.cumsum(lengths) - 1, device=device)
        for position, (p, row) in enumerate(zip(batch, decoder.logits(hidden_TE[last]), strict=True)):
            keep(p, store, position)
            logits[p] = row
    return logits


def _by_tokens(indices: Sequence[int], prompts: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
    batches: list[list[int]] = []
    room = 0
    for index in indices:
        if not batches or len(prompts[index]) > room:
            batches.append([])
            room = limit
        batches[-1].append(index)
        room -= len(prompts[index])
    return batches
