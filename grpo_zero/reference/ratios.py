"""How much likelier a token has become since it was sampled.

Off-policy answers are reweighted by ``r = pi / pi_old``. Exponents are bounded to +-20 (a factor of 4.9e8 either way): beyond it
the ratio stands still and has no gradient, so one absurd token can never make an infinity.
"""

from __future__ import annotations

import numpy as np

MAX_LOG_RATIO = 20.0


def token_ratio(logprobs_T: np.ndarray, old_logprobs_T: np.ndarray) -> np.ndarray:
    """``r_t = pi(y_t) / pi_old(y_t) = exp(log pi - log pi_old)``. Source: GRPO, 2402.03300, eq. 3 (from PPO, 1707.06347)."""
    return np.exp(np.clip(logprobs_T - old_logprobs_T, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def token_ratio_gradient(logprobs_T: np.ndarray, old_logprobs_T: np.ndarray, upstream_T: np.ndarray) -> np.ndarray:
    """``dr / d log pi = r``."""
    is_inside_T = np.abs(logprobs_T - old_logprobs_T) <= MAX_LOG_RATIO
    return upstream_T * token_ratio(logprobs_T, old_logprobs_T) * is_inside_T


def sequence_ratio(logprobs_T: np.ndarray, old_logprobs_T: np.ndarray) -> np.ndarray:
    """``s = exp((1/T) sum_t log r_t)`` of one answer, the same number for each of its tokens ``[T]``.

    The geometric mean of the token ratios: an answer's likelihood ratio without its length. Source: GSPO, 2507.18071, eq. 7.
    """
    mean = (logprobs_T - old_logprobs_T).mean()
    return np.full(len(logprobs_T), np.exp(np.clip(mean, -MAX_LOG_RATIO, MAX_LOG_RATIO)))


def sequence_ratio_gradient(logprobs_T: np.ndarray, old_logprobs_T: np.ndarray, upstream_T: np.ndarray) -> np.ndarray:
    """``ds / d log pi_t = s / T`` for every token."""
    is_inside = abs((logprobs_T - old_logprobs_T).mean()) <= MAX_LOG_RATIO
    return sequence_ratio(logprobs_T, old_logprobs_T) * upstream_T.sum() / len(logprobs_T) * is_inside
