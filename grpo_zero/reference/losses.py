"""The whole loss of one update, answer by answer, and its gradient with respect to every log-prob."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grpo_zero.reference.averages import token_weights
from grpo_zero.reference.kl import kl_estimate, kl_estimate_gradient
from grpo_zero.reference.objectives import (
    cispo_objective,
    cispo_objective_gradient,
    clipped_objective,
    clipped_objective_gradient,
    policy_gradient_objective,
    policy_gradient_objective_gradient,
)
from grpo_zero.reference.ratios import sequence_ratio, sequence_ratio_gradient, token_ratio, token_ratio_gradient


def policy_loss(
    logprobs: Sequence[np.ndarray],
    old_logprobs: Sequence[np.ndarray],
    advantages_B: np.ndarray,
    *,
    objective: str = "clipped",
    ratio_level: str = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    average: str = "token",
    max_length: int = 1,
    reference_logprobs: Sequence[np.ndarray] | None = None,
    kl_weight: float = 0.0,
    kl_estimator: str = "k3",
) -> tuple[float, list[np.ndarray]]:
    """``L = sum_i w_i sum_t (- J_it + beta kl_it)``: minus the objective of ``objectives``, weighted as in ``averages``.

    Args:
        logprobs: of each answer ``[T_i]``, the policy's log-probs of its tokens, nats.
        old_logprobs: the same of the policy that sampled.
        advantages_B: one per answer.
        reference_logprobs: the same of the policy to stay near, when ``kl_weight`` is not 0.

    Returns:
        The loss, and its derivative with respect to each entry of ``logprobs``.
    """
    weights_B = token_weights(np.array([len(x) for x in logprobs]), average, max_length)
    ratio, ratio_gradient = {
        "token": (token_ratio, token_ratio_gradient),
        "sequence": (sequence_ratio, sequence_ratio_gradient),
    }[ratio_level]
    loss, gradients = 0.0, []
    for i, (logprobs_T, old_T) in enumerate(zip(logprobs, old_logprobs, strict=True)):
        if not len(logprobs_T):
            gradients.append(np.zeros(0))
            continue
        ratio_T, advantage_T = ratio(logprobs_T, old_T), np.full(len(logprobs_T), advantages_B[i])
        upstream_T = np.full(len(logprobs_T), -weights_B[i])
        if objective == "clipped":
            bounds = (clip_low, clip_high, dual_clip)
            objective_T = clipped_objective(ratio_T, advantage_T, *bounds)
            to_ratio_T = clipped_objective_gradient(ratio_T, advantage_T, upstream_T, *bounds)
            gradient_T = ratio_gradient(logprobs_T, old_T, to_ratio_T)
        elif objective == "cispo":
            objective_T = cispo_objective(logprobs_T, ratio_T, advantage_T, clip_high)
            gradient_T = cispo_objective_gradient(logprobs_T, ratio_T, advantage_T, upstream_T, clip_high)
        else:
            objective_T = policy_gradient_objective(logprobs_T, advantage_T)
            gradient_T = policy_gradient_objective_gradient(logprobs_T, advantage_T, upstream_T)
        loss -= weights_B[i] * objective_T.sum()
        if kl_weight and reference_logprobs is not None:
            held_T, pull_T = reference_logprobs[i], np.full(len(logprobs_T), kl_weight * weights_B[i])
            loss += (pull_T * kl_estimate(logprobs_T, held_T, kl_estimator)).sum()
            gradient_T = gradient_T + kl_estimate_gradient(logprobs_T, held_T, pull_T, kl_estimator)
        gradients.append(gradient_T)
    return float(loss), gradients


def likelihood_loss(logprobs: Sequence[np.ndarray], weights_B: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """``- sum_i w_i sum_t log pi(y_it)``: the cross-entropy of demonstrations, and its gradient ``- w_i``."""
    loss = -sum(weight * logprobs_T.sum() for weight, logprobs_T in zip(weights_B, logprobs, strict=True))
    return float(loss), [np.full(len(x), -weight) for weight, x in zip(weights_B, logprobs, strict=True)]
