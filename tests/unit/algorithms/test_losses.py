"""The policy-gradient loss: its numbers, its gradient, and what its normaliser counts."""

from __future__ import annotations

import pytest
import torch

from grpo_zero.algorithms.losses import policy_gradient_loss

# L01: responses of 1 and 9 tokens, advantages +1 and -1, every log-prob -1.
LOGPROBS_T = torch.full((10,), -1.0)
ADVANTAGES_T = torch.tensor([1.0] + [-1.0] * 9)


def test_token_mean_of_a_short_and_a_long_response() -> None:
    """The objective is (-1 + 9) / 10 = 0.8; a mean of the responses' means would be 0."""
    assert policy_gradient_loss(LOGPROBS_T, ADVANTAGES_T, 10).item() == pytest.approx(-0.8)


@pytest.mark.parametrize("cut", range(11))
def test_parts_of_an_update_add_up(cut: int) -> None:
    """L01, L02: wherever the update is cut in two, the normaliser is the whole update's."""
    parts = [
        policy_gradient_loss(LOGPROBS_T[part], ADVANTAGES_T[part], 10) for part in (slice(0, cut), slice(cut, None))
    ]
    assert sum(parts).item() == pytest.approx(-0.8)


def test_gradient_is_minus_advantage_over_the_number_of_tokens() -> None:
    """L11: not zero, whatever the loss's value."""
    logprobs_T = LOGPROBS_T.clone().requires_grad_()
    policy_gradient_loss(logprobs_T, ADVANTAGES_T, 10).backward()
    torch.testing.assert_close(logprobs_T.grad, -ADVANTAGES_T / 10)


def test_no_tokens_give_zero() -> None:
    """L08."""
    assert policy_gradient_loss(torch.empty(0), torch.empty(0), 10).item() == 0.0
