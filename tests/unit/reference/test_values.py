"""The reference against numbers worked out by hand or by counting."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from grpo_zero.reference.advantages import advantages
from grpo_zero.reference.averages import token_weights
from grpo_zero.reference.groups import is_mixed, is_zero_variance
from grpo_zero.reference.kl import kl_estimate, kl_estimate_gradient
from grpo_zero.reference.losses import policy_loss
from grpo_zero.reference.objectives import clipped_objective, is_clipped
from grpo_zero.reference.ratios import sequence_ratio, token_ratio
from grpo_zero.reference.rewards import overlong_punishment
from grpo_zero.reference.softmax import entropy, log_softmax, token_logprobs_gradient
from grpo_zero.reference.statistics import (
    binary_advantages,
    pass_at_k,
    rollout_statistics,
    zero_variance_probability,
)

ONE_RIGHT = np.array([[1.0, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("settings", "right", "wrong"),
    [
        ({}, 1.732, -0.577),
        ({"std": "sample"}, 1.5, -0.5),
        ({"scale": "none"}, 0.75, -0.25),
        ({"scale": "none", "baseline": "leave_one_out"}, 1.0, -1 / 3),
        ({"scale": "batch_std"}, 1.732, -0.577),
    ],
)
def test_one_of_four_right(settings: dict[str, str], right: float, wrong: float) -> None:
    np.testing.assert_allclose(advantages(ONE_RIGHT, **settings)[0], [right, wrong, wrong, wrong], atol=5e-4)


def test_batch_scale_is_over_the_batch() -> None:
    rewards_PG = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert advantages(rewards_PG, scale="batch_std")[0, 1] == pytest.approx(0.5 / (np.sqrt(3) / 4 + 1e-4))
    assert advantages(rewards_PG, scale="whiten")[0, 1] == pytest.approx(0.5 / (np.sqrt(1 / 8) + 1e-4))
    assert not advantages(rewards_PG, scale="batch_std")[1].any()


@pytest.mark.parametrize(("num_right", "group_size"), [(1, 4), (3, 8), (7, 8)])
def test_binary_advantages(num_right: int, group_size: int) -> None:
    rewards = np.array([[1.0] * num_right + [0.0] * (group_size - num_right)])
    found = advantages(rewards)[0]
    np.testing.assert_allclose([found[0], found[-1]], binary_advantages(num_right, group_size), rtol=1e-3)


def test_averages_by_hand() -> None:
    lengths = np.array([1, 9, 0])
    np.testing.assert_allclose(token_weights(lengths, "sequence", 20), [1 / 2, 1 / 18, 0])
    np.testing.assert_allclose(token_weights(lengths, "token", 20), [1 / 10, 1 / 10, 0])
    np.testing.assert_allclose(token_weights(lengths, "constant", 20), [1 / 40, 1 / 40, 0])


def test_mean_of_means_is_not_the_token_mean() -> None:
    """CASES L01: 1 and 9 tokens, advantages +1 and -1, every log-prob -1: 0.8 as a token mean, 0 as a mean of means."""
    logprobs = [np.full(1, -1.0), np.full(9, -1.0)]
    values = {
        average: -policy_loss(
            logprobs, logprobs, np.array([1.0, -1.0]), objective="policy_gradient", average=average, max_length=9
        )[0]
        for average in ("token", "sequence")
    }
    assert values == pytest.approx({"token": 0.8, "sequence": 0.0})


def test_clipping_by_hand() -> None:
    ratio = np.array([1.5, 1.5, 0.5, 0.5, 5.0])
    advantage = np.array([1.0, -1.0, 1.0, -1.0, -1.0])
    np.testing.assert_allclose(clipped_objective(ratio, advantage, 0.2, 0.28), [1.28, -1.5, 0.5, -0.8, -5.0])
    np.testing.assert_allclose(clipped_objective(ratio, advantage, 0.2, 0.28, 3.0), [1.28, -1.5, 0.5, -0.8, -3.0])
    assert is_clipped(ratio, advantage, 0.2, 0.28).tolist() == [True, False, False, True, False]


def test_ratios_by_hand() -> None:
    old = np.log([0.5, 0.25])
    new = np.log([0.25, 0.5])
    np.testing.assert_allclose(token_ratio(new, old), [0.5, 2.0])
    np.testing.assert_allclose(sequence_ratio(new, old), [1.0, 1.0])
    np.testing.assert_allclose(sequence_ratio(new + np.log(4), old), [4.0, 4.0])


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_kl_estimators_are_unbiased_and_k2_has_the_gradient(estimator: str) -> None:
    """Expectations over all tokens, exactly: no sampling."""
    rng = np.random.default_rng(3)
    logits_V, reference_V = rng.normal(size=(2, 1, 5))
    q_V, p_V = log_softmax(logits_V)[0], log_softmax(reference_V)[0]
    true_kl = (np.exp(q_V) * (q_V - p_V)).sum()
    assert (np.exp(q_V) * kl_estimate(q_V, p_V, estimator)).sum() == pytest.approx(true_kl)
    gradients = {}
    for name in ("k1", "k2", "k3"):
        slope_V = kl_estimate_gradient(q_V, p_V, np.ones(5), name)
        gradients[name] = sum(
            np.exp(q_V[v]) * token_logprobs_gradient(logits_V, np.array([v]), slope_V[[v]])[0] for v in range(5)
        )
    true_gradient = np.exp(q_V) * (q_V - p_V - true_kl)
    np.testing.assert_allclose(gradients["k1"], 0, atol=1e-12)
    np.testing.assert_allclose(gradients["k2"], true_gradient, atol=1e-12)
    np.testing.assert_allclose(gradients["k3"], np.exp(q_V) - np.exp(p_V), atol=1e-12)  # of KL(p||q)


def test_overlong_punishment() -> None:
    found = overlong_punishment(np.array([0, 80, 90, 100, 120]), 100, 20)
    np.testing.assert_allclose(found, [0, 0, -0.5, -1, -1])


def test_groups() -> None:
    rewards = np.array([[0.1] * 7, [0.1] * 6 + [0.2], [np.nan] * 7, [np.nan] * 6 + [1.0]], dtype=np.float64)
    assert is_zero_variance(rewards).tolist() == [True, False, True, True]
    assert is_mixed(np.array([[True, True], [True, False], [False, False]])).tolist() == [False, True, False]


def test_entropy() -> None:
    assert entropy(np.zeros((1, 8)))[0] == pytest.approx(np.log(8))
    assert entropy(np.array([[100.0, 0.0, 0.0]]))[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("success", "usable"), [(0.01, 0.08), (0.02, 0.15), (0.05, 0.34), (0.1, 0.57), (0.2, 0.83), (0.5, 0.99)]
)
def test_usable_share(success: float, usable: float) -> None:
    assert 1 - zero_variance_probability(np.array(success), 8) == pytest.approx(usable, abs=0.006)
    assert zero_variance_probability(np.array(1 - success), 8) == pytest.approx(
        zero_variance_probability(np.array(success), 8)
    )


def test_zero_variance_with_uniform_success() -> None:
    grid = (np.arange(100_000) + 0.5) / 100_000
    assert zero_variance_probability(grid, 8).mean() == pytest.approx(2 / 9, abs=1e-6)


def test_pass_at_k_counts_subsets() -> None:
    for n, c in product(range(1, 7), range(7)):
        if c > n:
            continue
        for k in range(1, n + 1):
            subsets = list(combinations([True] * c + [False] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(np.mean([any(s) for s in subsets]))
    for wrong in ((4, 5, 1), (4, 2, 5), (4, 2, 0)):
        with pytest.raises(ValueError, match="not defined"):
            pass_at_k(*wrong)


def test_rollout_statistics() -> None:
    lengths = np.array([[2, 4], [6, 8]])
    correct = np.array([[True, False], [False, False]])
    facts = rollout_statistics(lengths, correct, lengths < 8, correct.astype(float))
    assert facts == {
        "reward": 0.25,
        "success": 0.25,
        "length": 5.0,
        "truncated_share": 0.25,
        "zero_variance_share": 0.5,
        "length_right": 2.0,
        "length_wrong": 6.0,
    }
    assert "length_right" not in rollout_statistics(lengths, correct & False, lengths < 8, correct.astype(float))
