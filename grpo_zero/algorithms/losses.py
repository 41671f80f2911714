"""Losses: log-probs of sampled tokens in, one scalar out."""

from __future__ import annotations

from torch import Tensor


def policy_gradient_loss(logprobs_T: Tensor, advantages_T: Tensor, normaliser: float) -> Tensor:
    """``- sum_t A_t log pi(y_t) / normaliser``: the policy gradient with a token-mean normaliser.

    With one update per rollout the clipped GRPO objective (2402.03300, eq. 3) has exactly this gradient: the ratio is 1
    everywhere, so nothing is clipped. The loss *value* says nothing about progress (advantages of a group sum to about 0).

    Args:
        logprobs_T: log-probs of the sampled tokens, nats.
        advantages_T: each token's advantage (its completion's); 0 where a token is not to be trained.
        normaliser: number of trained completion tokens of the whole update, not of this micro-batch: micro-batch losses then
            add up to the update's loss, whatever the split.
    """
    return -(logprobs_T * advantages_T).sum() / normaliser
