"""Prompts, each computed once, and once for all what they begin with: keys and values for the completions to come, logits for
their first token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.attention import GroupLayout, packed_positions, shared_length
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
        shared = shared_length([prompts[p] for p in batch])
        own = [prompts[p][shared:] for p in batch]
        store = PromptStore([len(prompts[p]) for p in batch], device, shared)
        tokens = [*prompts[batch[0]][:shared], *chain.from_iterable(own)]
        positions = packed_positions([GroupLayout(len(ids), ()) for ids in own], shared)
        hidden_TE = decoder(torch.tensor(tokens, device=device), torch.from_numpy(positions).to(device), store)
        last = torch.tensor(shared + np.cumsum([len(ids) for ids in own]) - 1, device=device)
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
