"""Estimates of KL(policy || reference) from the policy's own tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_zero.algorithms.ratios import MAX_LOG_RATIO


def kl_estimate(logprobs_T: Tensor, reference_logprobs_T: Tensor, estimator: str = "k3") -> Tensor:
    """``k1 = -log rho``, ``k2 = (log rho)^2 / 2``, ``k3 = rho - 1 - log rho``, with ``rho = pi_ref / pi``; nats a token.

    Source: Schulman, "Approximating KL divergence" (2020); k3 in GRPO, 2402.03300, eq. 4. As a loss, k1 teaches nothing (its
    expected gradient is 0), k2 has exactly the gradient of the KL, k3 to first order. Exactly 0 where both agree; at least
    float32; k3's exponent is bounded from above, as the ratios' is.
    """
    dtype = torch.promote_types(logprobs_T.dtype, torch.float32)
    log_rho_T = reference_logprobs_T.to(dtype) - logprobs_T.to(dtype)
    if estimator == "k1":
        return -log_rho_T
    if estimator == "k2":
        return log_rho_T**2 / 2
    bounded_T = log_rho_T.clamp(max=MAX_LOG_RATIO)
    return torch.expm1(bounded_T) - bounded_T
