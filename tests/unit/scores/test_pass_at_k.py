"""pass@k: the estimate by counting subsets, its lack of bias, and how often the interval holds the truth."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from grpo_zero.observe.intervals import success_interval
from grpo_zero.scores.pass_at_k import pass_at_k, pass_interval, reported_ks


@pytest.mark.parametrize("num_samples", [1, 2, 3, 6])
def test_it_is_the_share_of_subsets_with_a_right_answer(num_samples: int) -> None:
    for k in range(1, num_samples + 1):
        found = pass_at_k(np.arange(num_samples + 1), num_samples, k)
        for num_right, estimate in enumerate(found):
            answers = [True] * num_right + [False] * (num_samples - num_right)
            subsets = list(combinations(answers, k))
            assert estimate == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


def test_by_hand() -> None:
    # 2 right of 5: 3 wrong, so pass@2 = 1 - C(3,2)/C(5,2) = 1 - 3/10; pass@4 = 1, since 4 of them cannot all be wrong.
    assert pass_at_k(np.array([2]), 5, 2) == pytest.approx([0.7])
    assert pass_at_k(np.array([2, 0]), 5, 4).tolist() == [1.0, 0.0]
    # Both subsets of a coin: pass@2 of 1 right in 4 is 1/2, where the plug-in says 1 - (3/4)^2 = 7/16.
    assert pass_at_k(np.array([1]), 4, 2) == pytest.approx([0.5])


def test_many_answers_overflow_nothing() -> None:
    found = pass_at_k(np.array([1, 40]), 5000, 2500)
    exact = [1 - comb(4999, 2500) / comb(5000, 2500), 1 - comb(4960, 2500) / comb(5000, 2500)]
    assert found == pytest.approx(exact, rel=1e-12)


def test_its_mean_over_all_outcomes_is_the_truth() -> None:
    n, rate = 6, 0.3
    chances = np.array([comb(n, c) * rate**c * (1 - rate) ** (n - c) for c in range(n + 1)])
    for k in (1, 2, 4, 6):
        assert chances @ pass_at_k(np.arange(n + 1), n, k) == pytest.approx(1 - (1 - rate) ** k)


@pytest.mark.parametrize("k", [0, 5])
def test_more_than_there_are_is_an_error(k: int) -> None:
    with pytest.raises(ValueError, match="1 to 4"):
        pass_at_k(np.array([1]), 4, k)


def test_which_are_reported() -> None:
    assert [reported_ks(n) for n in (1, 2, 3, 8, 10)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 10]]


def test_pass_at_1_is_success() -> None:
    success = np.random.default_rng(0).random((20, 5)) < 0.4
    assert pass_interval(success, 1) == pytest.approx(success_interval(success))


def test_pass_at_all_is_wilsons_over_problems() -> None:
    """With k = K a problem either has a right answer or not: 5 of 10, the textbook's 0.2366 to 0.7634."""
    success = np.zeros((10, 3), dtype=bool)
    success[:5, 1] = True
    assert pass_interval(success, 3) == pytest.approx((0.5, 0.236593, 0.763407), abs=1e-5)


@pytest.mark.parametrize("k", [2, 4, 8])
@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.0), (50.0, 100.0), (0.3, 6.0), (2.0, 2.0)])
def test_coverage(k: int, alpha: float, beta: float) -> None:
    """Success rates from Beta(alpha, beta), whose mean pass@k is 1 - E[(1-p)^k], a ratio of rising factorials."""
    rng = np.random.default_rng(2)
    places = np.arange(k)
    truth = 1 - np.prod((beta + places) / (alpha + beta + places))
    covered = 0
    for _ in range(1000):
        _, low, high = pass_interval(rng.random((64, 8)) < rng.beta(alpha, beta, size=(64, 1)), k)
        covered += low <= truth <= high
    # 1000 runs know the coverage to +- 1.4 points; above 97 % where pass@k is near 1.
    assert 0.92 <= covered / 1000 <= 0.99
