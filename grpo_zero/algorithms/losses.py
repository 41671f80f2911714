"""The loss of an update: log-probs of sampled tokens in, one scalar out."""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_zero.algorithms.kl import kl_estimate
from grpo_zero.algorithms.objectives import cispo_objective, clipped_objective, is_clipped, policy_gradient_objective
from grpo_zero.algorithms.ratios import sequence_ratio, token_ratio


def policy_loss(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    weights_T: Tensor,
    row_T: Tensor,
    *,
    objective: str = "clipped",
    ratio_level: str = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    reference_logprobs_T: Tensor | None = None,
    kl_weight: float = 0.0,
    kl_estimator: str = "k3",
) -> tuple[Tensor, dict[str, Tensor]]:
    """``L = sum_t w_t (- J_t + beta kl_t)`` over the tokens of a micro-batch; the sum over micro-batches is the update's loss.

    Args:
        logprobs_T: the policy's log-probs of the sampled tokens, nats, with a gradient.
        old_logprobs_T: those of the policy that sampled them.
        advantages_T: each token's advantage (its completion's).
        weights_T: each token's weight (``averages.token_weights``), over the whole update.
        row_T: int64, which completion each token belongs to; completions are whole.
        objective: J: ``clipped``, ``cispo`` or ``policy_gradient`` (``objectives``).
        ratio_level: ``token`` or ``sequence`` (``ratios``).
        clip_low, clip_high, dual_clip: bounds of the ratio.
        reference_logprobs_T: of the policy to stay near; None = no KL term.
        kl_weight, kl_estimator: beta, and how kl is estimated (``kl``).

    Returns:
        The loss, and sums over tokens: ``clip_fraction_low``, ``clip_fraction_high`` (clipped tokens), ``kl_old`` and, with a
        reference, ``kl_reference`` (k3 estimates, nats).
    """
    if ratio_level == "sequence":
        ratio_T = sequence_ratio(logprobs_T, old_logprobs_T, row_T)
    else:
        ratio_T = token_ratio(logprobs_T, old_logprobs_T)
    if objective == "clipped":
        objective_T = clipped_objective(ratio_T, advantages_T, clip_low, clip_high, dual_clip)
    elif objective == "cispo":
        objective_T = cispo_objective(logprobs_T, ratio_T, advantages_T, clip_high)
    else:
        objective_T = policy_gradient_objective(logprobs_T, advantages_T)
    loss_T = -objective_T
    facts: dict[str, Tensor] = {}
    with torch.no_grad():
        # The ratio is new / old under old samples: k3 of KL(old || new) has the roles of q and p swapped.
        facts["kl_old"] = kl_estimate(old_logprobs_T, logprobs_T).sum()
        if objective == "clipped":
            is_clipped_T = is_clipped(ratio_T, advantages_T, clip_low, clip_high, dual_clip)
            facts["clip_fraction_low"] = (is_clipped_T & (advantages_T < 0)).sum()
            facts["clip_fraction_high"] = (is_clipped_T & (advantages_T > 0)).sum()
        if objective == "cispo":
            facts["clip_fraction_high"] = (ratio_T > 1 + clip_high).sum()
    if reference_logprobs_T is not None:
        if kl_weight:
            loss_T = loss_T + kl_weight * kl_estimate(logprobs_T, reference_logprobs_T, kl_estimator)
        facts["kl_reference"] = kl_estimate(logprobs_T.detach(), reference_logprobs_T).sum()
    return (weights_T * loss_T).sum(), facts


def likelihood_loss(logprobs_T: Tensor, weights_T: Tensor) -> Tensor:
    """``- sum_t w_t log pi(y_t)``: the cross-entropy of demonstrations."""
    return -(weights_T * policy_gradient_objective(logprobs_T, torch.ones_like(logprobs_T))).sum()
