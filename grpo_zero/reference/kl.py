"""How far the policy has moved, estimated from the sampled tokens alone.

With ``rho = p / q``, tokens x drawn from q, and the target KL(q||p) = E_q[-log rho]. Here q is the policy and p the one it is
held to. Source: Schulman, "Approximating KL divergence" (2020); GRPO uses k3 (2402.03300, eq. 4).

    k1 = -log rho              unbiased, can be negative
    k2 = (log rho)^2 / 2       biased, never negative
    k3 = rho - 1 - log rho     unbiased, never negative

As a loss that is differentiated with the samples held fixed they teach different things: k1 has expected gradient 0 (it
teaches nothing), k2 has exactly the gradient of KL(q||p), k3 that of KL(p||q), which agrees to first order.
"""

from __future__ import annotations

import numpy as np

from grpo_zero.reference.ratios import MAX_LOG_RATIO


def kl_estimate(logprobs_T: np.ndarray, reference_logprobs_T: np.ndarray, estimator: str = "k3") -> np.ndarray:
    """``[T]``, nats; exactly 0 where both agree. The exponent of k3 is bounded from above, as the ratios' is."""
    log_rho_T = reference_logprobs_T - logprobs_T
    if estimator == "k1":
        return -log_rho_T
    if estimator == "k2":
        return log_rho_T**2 / 2
    bounded_T = np.minimum(log_rho_T, MAX_LOG_RATIO)
    return np.expm1(bounded_T) - bounded_T


def kl_estimate_gradient(
    logprobs_T: np.ndarray, reference_logprobs_T: np.ndarray, upstream_T: np.ndarray, estimator: str = "k3"
) -> np.ndarray:
    """With respect to ``log q``: 1 for k1, ``-log rho`` for k2, ``1 - rho`` for k3."""
    log_rho_T = reference_logprobs_T - logprobs_T
    if estimator == "k1":
        return upstream_T * np.ones_like(log_rho_T)
    if estimator == "k2":
        return upstream_T * -log_rho_T
    is_inside_T = log_rho_T <= MAX_LOG_RATIO
    return upstream_T * np.where(is_inside_T, -np.expm1(np.where(is_inside_T, log_rho_T, 0.0)), 0.0)
