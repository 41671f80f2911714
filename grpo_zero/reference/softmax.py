"""A policy is a softmax over logits: log-probs, entropy, and what moves them."""

from __future__ import annotations

import numpy as np


def log_softmax(logits_TV: np.ndarray) -> np.ndarray:
    """``log p_v = z_v - log sum_w exp(z_w)``, nats; the largest logit is taken out first, so nothing overflows."""
    shifted_TV = logits_TV - logits_TV.max(-1, keepdims=True)
    return shifted_TV - np.log(np.exp(shifted_TV).sum(-1, keepdims=True))


def token_logprobs(logits_TV: np.ndarray, targets_T: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """``log p(y_t)`` of the tempered distribution ``softmax(z / temperature)``: the one that was sampled from."""
    return log_softmax(logits_TV / temperature)[np.arange(len(targets_T)), targets_T]


def token_logprobs_gradient(
    logits_TV: np.ndarray, targets_T: np.ndarray, upstream_T: np.ndarray, temperature: float = 1.0
) -> np.ndarray:
    """``d log p_y / d z_v = ([v = y] - p_v) / temperature``: up for the token that was taken, down for all in proportion."""
    probs_TV = np.exp(log_softmax(logits_TV / temperature))
    is_taken_TV = np.arange(logits_TV.shape[-1]) == targets_T[:, None]
    return upstream_T[:, None] * (is_taken_TV - probs_TV) / temperature


def entropy(logits_TV: np.ndarray) -> np.ndarray:
    """``H = - sum_v p_v log p_v``, nats; ``log V`` for a uniform distribution, 0 for a certain one."""
    logprobs_TV = log_softmax(logits_TV)
    return -(np.exp(logprobs_TV) * logprobs_TV).sum(-1)


def entropy_gradient(logits_TV: np.ndarray, upstream_T: np.ndarray) -> np.ndarray:
    """``d H / d z_v = - p_v (log p_v + H)``."""
    logprobs_TV = log_softmax(logits_TV)
    return -upstream_T[:, None] * np.exp(logprobs_TV) * (logprobs_TV + entropy(logits_TV)[:, None])
