"""The losses of ``algorithms/`` applied to completion tokens: GRPO's, as configured, and that of demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from grpo_zero.algorithms.losses import likelihood_loss, policy_loss
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.train.batch import CompletionTokens


class TokenLoss(Protocol):
    """From log-probs ``[C]`` of completion tokens to their part of the loss, a scalar, and to sums of facts over them."""

    @property
    def is_separable(self) -> bool:
        """Whether a token's part depends on its own log-prob alone, so that tokens may come in any chunks."""

    def __call__(self, logprobs_C: Tensor, tokens: CompletionTokens) -> tuple[Tensor, Mapping[str, Tensor]]: ...


@dataclass(frozen=True, slots=True)
class GRPOLoss:
    """``algorithms.losses.policy_loss`` with the configured parts."""

    algorithm: AlgorithmConfig
    is_on_policy: bool
    """The weights are still those that sampled, so the ratio is ``pi / sg(pi)``: exactly 1, with its gradient. Otherwise
    ``old_logprobs_C`` are the old ones."""

    @property
    def is_separable(self) -> bool:
        return self.algorithm.ratio_level == "token"

    def __call__(self, logprobs_C: Tensor, tokens: CompletionTokens) -> tuple[Tensor, dict[str, Tensor]]:
        algorithm = self.algorithm
        return policy_loss(
            logprobs_C,
            logprobs_C.detach() if self.is_on_policy else tokens.old_logprobs_C,
            tokens.advantages_C,
            tokens.weights_C,
            tokens.row_C,
            objective=algorithm.objective,
            ratio_level=algorithm.ratio_level,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            dual_clip=algorithm.dual_clip,
            reference_logprobs_T=tokens.reference_logprobs_C,
            kl_weight=algorithm.kl_weight if algorithm.has_kl_loss else 0.0,
            kl_estimator=algorithm.kl_estimator,
        )


@dataclass(frozen=True, slots=True)
class DemonstrationLoss:
    """The mean cross-entropy of demonstrations."""

    is_separable = True

    def __call__(self, logprobs_C: Tensor, tokens: CompletionTokens) -> tuple[Tensor, dict[str, Tensor]]:
        return likelihood_loss(logprobs_C, tokens.weights_C), {}


def slope(loss: TokenLoss, logprobs_C: Tensor, tokens: CompletionTokens) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss's derivative by each log-prob, ``[C]``; and its value, as ``loss``, beside its facts."""
    leaf_C = logprobs_C.detach().requires_grad_()
    with torch.enable_grad():
        value, facts = loss(leaf_C, tokens)
        (slope_C,) = torch.autograd.grad(value, leaf_C)
    return slope_C, {"loss": value.detach(), **facts}
