"""The judge of the engine: one completion at a time, the whole sequence computed again for every token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder
from grpo_zero.randomness import stream
from grpo_zero.rollout.sampler import SamplingParams, sample, uniform_dtype
from grpo_zero.types import Completion, FinishReason


@torch.inference_mode()
def naive_generate(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    num_samples: int,
    params: SamplingParams,
    *,
    stop_ids: frozenset[int],
    has_token_V: Tensor | None = None,
    seed_key: tuple[int, str, int] = (0, "sample", 0),
) -> list[list[Completion]]:
    """What ``Engine.generate`` must return, the slow and obvious way. Same arguments, same result."""
    out = []
    for p, prompt in enumerate(prompts):
        group = []
        for g in range(num_samples):
            uniforms = stream(*seed_key, p, g).random(params.max_new_tokens)
            ids: list[int] = []
            logprobs: list[float] = []
            while len(ids) < params.max_new_tokens and not (ids and ids[-1] in stop_ids):
                tokens_T = torch.tensor([*prompt, *ids], device=decoder.device)
                positions_T = torch.arange(len(tokens_T), device=decoder.device)
                hidden_TE = decoder(tokens_T, positions_T, DenseCausal())
                uniform = torch.tensor([uniforms[len(ids)]], dtype=uniform_dtype(decoder.device), device=decoder.device)
                next_id, logprob = sample(decoder.logits(hidden_TE[-1:]), uniform, params, has_token_V)
                ids.append(int(next_id))
                logprobs.append(float(logprob))
            reason: FinishReason = "stop" if ids[-1] in stop_ids else "length"
            group.append(Completion(p, g, ids, logprobs, reason, 0))
        out.append(group)
    return out
