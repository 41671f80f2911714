"""Two models on the same problems: the exact test against enumeration and the binomial, the interval against published ones."""

from __future__ import annotations

import time
from itertools import product
from math import comb

import numpy as np
import pytest

from grpo_zero.scores.paired import difference_interval, paired_difference, sign_flip_p


def test_the_p_value_is_the_share_of_all_sign_flips() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        differences = rng.integers(-4, 5, size=8)
        seen = abs(differences.sum())
        flips = [abs(np.dot(signs, np.abs(differences))) >= seen for signs in product((-1, 1), repeat=8)]
        assert sign_flip_p(differences) == pytest.approx(np.mean(flips), abs=1e-12)


@pytest.mark.parametrize(("num_better", "num_worse"), [(1, 0), (5, 0), (7, 2), (10, 10), (60, 28), (0, 200)])
def test_one_answer_each_is_mcnemars_exact_test(num_better: int, num_worse: int) -> None:
    total = num_better + num_worse
    tail = sum(comb(total, i) for i in range(min(num_better, num_worse) + 1)) / 2**total
    found = sign_flip_p(np.array([1] * num_better + [-1] * num_worse + [0] * 5))
    assert found == pytest.approx(
        min(1.0, 2 * tail), rel=1e-9
    )  # also 2 * 2^-200, where a difference of sums would be 0


def test_by_hand() -> None:
    # Sums of +-3 +-1: 4, 2, -2, -4. Two of four are as far out as 4, all of them as 2.
    assert sign_flip_p(np.array([3, 1])) == 0.5
    assert sign_flip_p(np.array([3, -1])) == 1.0
    assert sign_flip_p(np.array([30, 10])) == 0.5, "in other units the same"
    assert sign_flip_p(np.array([0, 0])) == 1.0, "nothing tells them apart"


def test_thousands_of_problems_take_no_time() -> None:
    differences = np.random.default_rng(0).integers(-15, 17, size=2000)
    start = time.process_time()
    assert 0 < sign_flip_p(differences) < 1
    assert time.process_time() - start < 5


def test_unequal_numbers_of_answers() -> None:
    """2 of 4 against 1 of 2 is no difference; 1 of 4 against 1 of 2 is a quarter."""
    mine = np.array([[True, True, False, False], [True, False, False, False]])
    other = np.array([[True, False], [True, False]])
    found = paired_difference(mine, other)
    assert found.mean == pytest.approx(-0.125)
    assert (found.num_better, found.num_worse, found.p_value) == (0, 1, 1.0)
    assert found.low < found.mean < found.high


def test_the_interval_is_bonett_and_prices() -> None:
    """The example of R's statpsych, ci.prop.ps(.05, 12, 4, 26, 6): 0.2548067 to 0.6251933."""
    differences = np.array([1.0] * 26 + [-1.0] * 4 + [0.0] * 18)
    assert difference_interval(differences, 1) == pytest.approx((0.2548067, 0.6251933), abs=1e-7)


def test_the_interval_by_hand_for_four_answers() -> None:
    # Two problems, d = 1/2 and 0: m = 0.5 / 4, mean square (0.25 + 2/4) / 4, variance 0.1875 - 0.015625, over 4.
    half = 1.959964 * (0.171875 / 4) ** 0.5
    assert difference_interval(np.array([0.5, 0.0]), 4) == pytest.approx((0.125 - half, 0.125 + half), abs=1e-6)


def test_the_interval_has_a_width_where_nothing_differs_and_stays_within_bounds() -> None:
    low, high = difference_interval(np.zeros(20), 1)
    assert low == pytest.approx(-high)
    assert 0.1 < high < 0.2
    assert difference_interval(np.ones(2), 1)[1] == 1.0


@pytest.mark.parametrize(
    ("num_problems", "num_samples", "alpha", "beta", "shift"),
    [(32, 1, 0.5, 1.0, 0.2), (16, 4, 0.5, 1.0, 0.1), (64, 8, 50.0, 100.0, 0.1), (128, 4, 0.3, 6.0, 0.02)],
)
def test_coverage(num_problems: int, num_samples: int, alpha: float, beta: float, shift: float) -> None:
    rng = np.random.default_rng(3)
    rates = rng.beta(alpha, beta, size=400_000)
    truth = float((np.minimum(rates + shift, 1) - rates).mean())
    covered = 0
    for _ in range(1000):
        rates = rng.beta(alpha, beta, size=num_problems)
        right = rng.binomial(num_samples, np.minimum(rates + shift, 1)) - rng.binomial(num_samples, rates)
        low, high = difference_interval(right / num_samples, num_samples)
        covered += low <= truth <= high
    assert 0.925 <= covered / 1000 <= 0.99


def test_equal_models_are_told_apart_no_more_often_than_said() -> None:
    rng = np.random.default_rng(4)
    p_values = []
    for _ in range(1000):
        rates = rng.beta(0.5, 1.0, size=40)
        p_values.append(sign_flip_p(rng.binomial(4, rates) - rng.binomial(4, rates)))
    assert np.mean(np.array(p_values) < 0.05) <= 0.065  # an exact test: 0.05 and what 1000 runs can be off
