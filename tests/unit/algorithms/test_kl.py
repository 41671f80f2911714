"""KL estimates where numbers get hard (N05): precision and bounds."""

from __future__ import annotations

import pytest
import torch

from grpo_zero.algorithms.kl import kl_estimate


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("difference", [0.0, 100.0, -100.0, 25.0, -25.0, 1e-4])
def test_finite_and_exact_at_zero(estimator: str, difference: float) -> None:
    logprobs_T = torch.tensor([-3.0], requires_grad=True)
    value = kl_estimate(logprobs_T, torch.tensor([-3.0 + difference]), estimator)
    value.sum().backward()
    assert value.isfinite().all()
    assert logprobs_T.grad.isfinite().all()
    if difference == 0.0:
        assert value.item() == 0.0
    if estimator == "k3":
        assert value.item() >= 0


def test_k3_still_pulls_at_a_token_the_reference_finds_absurd() -> None:
    """log rho = -25: the value is 24 and the slope 1; only the other side has to be bounded."""
    logprobs_T = torch.tensor([-1.0], requires_grad=True)
    value = kl_estimate(logprobs_T, torch.tensor([-26.0]))
    value.sum().backward()
    assert (value.item(), logprobs_T.grad.item()) == (pytest.approx(24.0), pytest.approx(1.0))


def test_half_precision_is_lifted_first() -> None:
    """A bf16 difference of 0.01 at -20 would be 0: each side is made float32 before they meet."""
    own, held = torch.tensor([-20.0], dtype=torch.bfloat16), torch.tensor([-20.01])
    value = kl_estimate(own, held, "k1")
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(0.01, rel=1e-3)
