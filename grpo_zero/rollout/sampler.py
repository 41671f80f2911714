"""From logits to one token id a row, with the log-prob of the distribution really sampled.

A row's token is the inverse of its cumulative distribution at a uniform number that belongs to (sample, position) alone, so
what a sample says does not depend on the slot or the batch it runs in.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn."""

    max_new_tokens: int
    """Longest completion, tokens, the stop id included."""
    temperature: float = 1.0
    """Logits are divided by this; 0 means greedy."""
    top_k: int | None = None
    """Only the k most likely ids can be drawn, and those as likely as the k-th; None = all."""
    top_p: float = 1.0
    """Only the smallest set of most likely ids whose probabilities sum to at least this can be drawn."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


LOWEST_LOGIT = torch.finfo(torch.float32).min
"""Of ids without a token: probability exactly 0, and a finite log-prob, so no NaN arises in p log p."""


def uniform_dtype(device: torch.device) -> torch.dtype:
    """The precision to sum probabilities in: float64, which Apple's mps does not have."""
    return torch.float32 if device.type == "mps" else torch.float64


def stop_table(stop_ids: frozenset[int], vocab_size: int, device: torch.device) -> Tensor:
    """bool ``[V]``: whether an id ends a completion."""
    is_stop_V = torch.zeros(vocab_size, dtype=torch.bool)
    is_stop_V[[id_ for id_ in stop_ids if id_ < vocab_size]] = True
    return is_stop_V.to(device)


def masked_logits(logits_SV: Tensor, has_token_V: Tensor | None) -> Tensor:
    """Float32 logits in which ids without a token have ``LOWEST_LOGIT``."""
    logits_SV = logits_SV.float()
    if has_token_V is None:
        return logits_SV
    return logits_SV.masked_fill(~has_token_V, LOWEST_LOGIT)


def sample(
    logits_SV: Tensor, uniforms_S: Tensor, params: SamplingParams, has_token_V: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Draw one id a row.

    Args:
        logits_SV: raw logits, any float dtype.
        uniforms_S: numbers in [0, 1), one a row, in the precision to sum probabilities in; unused when greedy.
        params: temperature and truncation.
        has_token_V: bool; ids without a token are never drawn. None = every id has one.

    Returns:
        ``(ids_S, logprobs_S)``: int64 ids and float32 log-probs in nats under the tempered, truncated, renormalised
        distribution; greedy reports the log-prob at temperature 1. Rows whose logits hold NaN or infinity have a log-prob of
        NaN, and any id: the host finds out when it reads them (``request.py``).
    """
    logits_SV = masked_logits(logits_SV, has_token_V)
    if params.is_greedy:
        ids_S = logits_SV.argmax(-1)
        return ids_S, logits_SV.log_softmax(-1).gather(-1, ids_S[:, None])[:, 0]
    if params.temperature != 1.0:
        logits_SV = logits_SV / params.temperature
    logprobs_SV = _truncate(logits_SV, params).log_softmax(-1)
    cumulative_SV = logprobs_SV.exp().cumsum(-1, dtype=uniforms_S.dtype)
    threshold_S1 = uniforms_S[:, None] * cumulative_SV[:, -1:]
    ids_S1 = torch.searchsorted(cumulative_SV, threshold_S1, right=True)
    # u * total can round up to the total: fall back to the last id that has any probability.
    last_S1 = torch.searchsorted(cumulative_SV, cumulative_SV[:, -1:].contiguous(), right=False)
    # Where the logits are NaN, both are the first place behind the vocabulary: reading there would kill a GPU's whole context.
    ids_S1 = torch.minimum(ids_S1, last_S1).clamp_(max=logits_SV.shape[-1] - 1)
    return ids_S1[:, 0], logprobs_SV.gather(-1, ids_S1)[:, 0]


def _truncate(logits_SV: Tensor, params: SamplingParams) -> Tensor:
    """Logits with everything outside the top-k and top-p sets at minus infinity. The likeliest id always stays."""
    if params.top_k is not None and params.top_k < logits_SV.shape[-1]:
        kth_S1 = logits_SV.topk(params.top_k, dim=-1).values[:, -1:]
        logits_SV = logits_SV.masked_fill(logits_SV < kth_S1, -torch.inf)
    if params.top_p < 1.0:
        sorted_SV, order_SV = logits_SV.sort(dim=-1, descending=True)
        probs_SV = sorted_SV.softmax(-1)
        mass_before_SV = probs_SV.cumsum(-1) - probs_SV
        outside_SV = (mass_before_SV >= params.top_p).scatter(-1, order_SV, mass_before_SV >= params.top_p)
        logits_SV = logits_SV.masked_fill(outside_SV, -torch.inf)
    return logits_SV
