"""The losses of ``algorithms/`` applied to a micro-batch: GRPO's, as configured, and that of demonstrations."""

from __future__ import annotations

from torch import Tensor

from grpo_zero.algorithms.losses import likelihood_loss, policy_loss
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.train.batch import PackedBatch


def grpo_loss(
    logprobs_C: Tensor, batch: PackedBatch, *, algorithm: AlgorithmConfig, is_on_policy: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """``algorithms.losses.policy_loss`` with the configured parts.

    Args:
        is_on_policy: the weights are still those that sampled, so the ratio is ``pi / sg(pi)``: exactly 1, with its gradient.
            Otherwise ``batch.old_logprobs_C`` are the old ones.
    """
    return policy_loss(
        logprobs_C,
        logprobs_C.detach() if is_on_policy else batch.old_logprobs_C,
        batch.advantages_C,
        batch.weights_C,
        batch.row_C,
        objective=algorithm.objective,
        ratio_level=algorithm.ratio_level,
        clip_low=algorithm.clip_low,
        clip_high=algorithm.clip_high,
        dual_clip=algorithm.dual_clip,
        reference_logprobs_T=batch.reference_logprobs_C,
        kl_weight=algorithm.kl_weight if algorithm.has_kl_loss else 0.0,
        kl_estimator=algorithm.kl_estimator,
    )


def demonstration_loss(logprobs_C: Tensor, batch: PackedBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean cross-entropy of demonstrations."""
    return likelihood_loss(logprobs_C, batch.weights_C), {}
