"""Importance ratios of sampled tokens."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Exponents are bounded to plus and minus this: beyond it a ratio is constant, so neither value nor gradient overflows."""


def token_ratio(logprobs_T: Tensor, old_logprobs_T: Tensor) -> Tensor:
    """``r_t = pi(y_t) / pi_old(y_t)``. Source: GRPO, 2402.03300, eq. 3."""
    return (logprobs_T - old_logprobs_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_ratio(logprobs_T: Tensor, old_logprobs_T: Tensor, row_T: Tensor) -> Tensor:
    """``s = exp(mean_t log r_t)`` of each completion, at each of its tokens. Source: GSPO, 2507.18071, eq. 7.

    Args:
        logprobs_T, old_logprobs_T: of whole completions; one cut apart would get two means.
        row_T: int64, which completion each token belongs to, from 0.
    """
    log_ratio_T = logprobs_T - old_logprobs_T
    length_N = torch.bincount(row_T)
    sum_N = log_ratio_T.new_zeros(len(length_N)).index_add(0, row_T, log_ratio_T)
    mean_N = sum_N / length_N.clamp_min(1)
    return mean_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()[row_T]
