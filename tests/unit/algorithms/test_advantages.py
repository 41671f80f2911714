"""Group advantages: the cases of the fault list (A), by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grpo_zero.algorithms import groups
from grpo_zero.algorithms.advantages import STD_EPSILON, advantages

NAN = float("nan")
SCALES = ("none", "group_std", "batch_std", "whiten")


def group_advantages(rewards, **settings) -> np.ndarray:
    return advantages(torch.as_tensor(np.asarray(rewards)), **settings).numpy()


def is_zero_variance(rewards) -> np.ndarray:
    return groups.is_zero_variance(torch.as_tensor(np.asarray(rewards, dtype=np.float64))).numpy()


def test_one_right_of_four() -> None:
    """Population std of [1, 0, 0, 0] is sqrt(3) / 4: +1.732 and -0.577, but for the 1e-4 that is added."""
    std = np.sqrt(3) / 4
    expected = np.array([[0.75, -0.25, -0.25, -0.25]]) / (std + 1e-4)
    np.testing.assert_allclose(group_advantages([[1, 0, 0, 0]]), expected, rtol=1e-12)
    np.testing.assert_allclose(group_advantages([[1, 0, 0, 0]]), [[1.732, -0.577, -0.577, -0.577]], atol=1e-3)


@pytest.mark.parametrize("num_right", range(1, 8))
def test_zero_one_rewards_follow_the_closed_form(num_right: int) -> None:
    """A+ = sqrt((G - c) / c), A- = -sqrt(c / (G - c)) for c of G right."""
    group = np.arange(8) < num_right
    advantages_G = group_advantages([group])[0]
    wrong = 8 - num_right
    np.testing.assert_allclose(advantages_G[group], np.sqrt(wrong / num_right), rtol=1e-3)
    np.testing.assert_allclose(advantages_G[~group], -np.sqrt(num_right / wrong), rtol=1e-3)
    assert advantages_G.sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "rewards",
    [
        np.full((1, 8), 0.35),
        np.full((1, 3), 0.1),  # the mean is 0.10000000000000002
        np.full((1, 6), 1.1),
        np.full((1, 7), 0.1, dtype=np.float32),
        np.full((1, 7), 0.1, dtype=np.float16),
        np.zeros((1, 4)),
        np.ones((1, 2)),
        [[3.0]],
    ],
)
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("std", ["population", "sample"])
def test_equal_rewards_give_exactly_zero(rewards, baseline: str, scale: str, std: str) -> None:
    """A01, A02, A13; the std of seven float32 copies of 0.1 is 8e-9 when computed in float32, so it can't be the judge."""
    assert (group_advantages(rewards, baseline=baseline, scale=scale, std=std) == 0.0).all()
    assert is_zero_variance(rewards).tolist() == [True]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
def test_no_setting_gives_huge_advantages(scale: str, baseline: str) -> None:
    """A03: what gave 1e6 and -2000 elsewhere; one answer against G - 1 equal ones is at most G / sqrt(G - 1) away."""
    for group in ([1.0, 0, 0, 0], [0.0] + [0.95] * 7):
        assert np.abs(group_advantages([group], scale=scale, baseline=baseline)).max() < 3.1


def test_the_scale_is_over_what_it_says() -> None:
    """A05: two groups [0, 1] and [0, 0]: the batch's spread is not the first group's, and the second teaches nothing."""
    found = {scale: group_advantages([[0, 1], [0, 0]], scale=scale) for scale in SCALES}
    np.testing.assert_allclose(found["none"][0], [-0.5, 0.5])
    np.testing.assert_allclose(found["group_std"][0], [-1, 1], rtol=1e-3)
    np.testing.assert_allclose(found["batch_std"][0], np.array([-0.5, 0.5]) / np.sqrt(3 / 16), rtol=1e-3)
    np.testing.assert_allclose(found["whiten"][0], np.array([-0.5, 0.5]) / np.sqrt(1 / 8), rtol=1e-3)
    for advantages_PG in found.values():
        assert (advantages_PG[1] == 0.0).all()


def test_rounding_never_blows_up_a_nearly_equal_group() -> None:
    """A03: seven times 0.95 and a 0, and a spread of one float: bounded."""
    assert np.abs(group_advantages([[0.0] + [0.95] * 7])).max() == pytest.approx(np.sqrt(7), rel=1e-3)
    tiny = np.float64(0.95)
    assert np.abs(group_advantages([[tiny, np.nextafter(tiny, 1)]])).max() < 1e-9
    assert is_zero_variance([[tiny, np.nextafter(tiny, 1)]]).tolist() == [False]


def test_the_baseline_is_the_groups_own() -> None:
    """A06: [1, 1] and [0, 0] teach nothing; another group changes nothing."""
    assert (group_advantages([[1, 1], [0, 0]]) == 0.0).all()
    alone = group_advantages([[1, 0, 0, 1]])
    np.testing.assert_array_equal(group_advantages([[9, 8, 7, 6], [1, 0, 0, 1]])[1:], alone)


def test_unusable_rewards_are_left_out() -> None:
    """A08: statistics over the rest, and the sample itself contributes nothing."""
    advantages_G = group_advantages([[1, NAN, 0, 0]])[0]
    assert advantages_G[1] == 0.0
    np.testing.assert_array_equal(advantages_G[[0, 2, 3]], group_advantages([[1, 0, 0]])[0])


@pytest.mark.parametrize("rewards", [[[NAN, NAN]], [[1, NAN, 1]], [[NAN, 0.5, NAN]]])
@pytest.mark.parametrize("scale", SCALES)
def test_groups_without_two_different_usable_rewards_are_flat(rewards, scale: str) -> None:
    assert (group_advantages(rewards, scale=scale, std="sample", baseline="leave_one_out") == 0.0).all()
    assert is_zero_variance(rewards).tolist() == [True]


def test_half_precision_rewards_are_computed_in_double() -> None:
    """A13: float16 rewards that differ, and an epsilon that float16 would drop."""
    rewards = np.array([[1.0, 1.001]], dtype=np.float16)
    spread = float(rewards[0, 1]) - float(rewards[0, 0])
    assert spread > 0
    expected = spread / 2 / (spread / 2 + STD_EPSILON)
    found = group_advantages(rewards)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [[-expected, expected]], rtol=1e-9)


def test_normalised_once() -> None:
    """A11: twice as large rewards give the same advantages, up to the epsilon; one group's spread leaves another's alone."""
    rewards = np.random.default_rng(0).random((5, 6))
    np.testing.assert_allclose(group_advantages(2 * rewards), group_advantages(rewards), rtol=1e-3)
    np.testing.assert_allclose(group_advantages(rewards).std(1), 1.0, rtol=1e-2)


def test_no_groups_give_no_advantages() -> None:
    for scale in SCALES:
        assert group_advantages(np.zeros((0, 4)), scale=scale).shape == (0, 4)
