"""The interval is Wilson's for one answer a problem, and covers the truth 95 % of the time."""

from __future__ import annotations

import numpy as np
import pytest

from grpo_zero.observe.intervals import success_interval


def test_one_answer_a_problem_is_plain_wilson() -> None:
    # 5 of 10: the textbook's 95 % Wilson interval, 0.2366 to 0.7634.
    mean, low, high = success_interval([[True]] * 5 + [[False]] * 5)
    assert (mean, low, high) == pytest.approx((0.5, 0.236593, 0.763407), abs=1e-5)
    # 64 of 128: the 8.7 points of docs/algorithms, a little less by Wilson's shrinkage.
    _, low, high = success_interval([[True], [False]] * 64)
    assert (high - low) / 2 == pytest.approx(0.0854, abs=1e-3)


@pytest.mark.parametrize("num_samples", [1, 8])
def test_no_success_and_only_success_still_have_a_width(num_samples: int) -> None:
    none = success_interval(np.zeros((20, num_samples), dtype=bool))
    assert none.mean == none.low == 0
    # Wilson's upper end at 0 of n is z^2 / (n + z^2).
    assert none.high == pytest.approx(3.8415 / 23.8415, abs=1e-4)
    every = success_interval(np.ones((20, num_samples), dtype=bool))
    assert (every.low, every.high) == pytest.approx((1 - none.high, 1.0))


def test_repeating_an_answer_adds_no_certainty() -> None:
    rng = np.random.default_rng(0)
    once = rng.random((50, 1)) < 0.3
    assert success_interval(np.repeat(once, 16, axis=1)) == pytest.approx(success_interval(once))


def test_independent_answers_count_fully_and_never_more() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        spread = rng.random((64, 4)) < 0.5
        one_each = success_interval(spread.reshape(-1, 1))
        grouped = success_interval(spread)
        assert grouped.high - grouped.low >= one_each.high - one_each.low - 1e-12


@pytest.mark.parametrize(
    ("num_problems", "num_samples", "alpha", "beta"),
    [
        (64, 1, 1.0, 2.0),
        (64, 8, 0.5, 1.0),  # mostly always right or always wrong
        (64, 8, 50.0, 100.0),  # problems hardly differ
        (128, 4, 0.3, 6.0),  # rare success
        (32, 16, 2.0, 2.0),
    ],
)
def test_coverage(num_problems: int, num_samples: int, alpha: float, beta: float) -> None:
    """Problems with success rates drawn from Beta(alpha, beta): the mean is alpha/(alpha+beta)."""
    rng = np.random.default_rng(1)
    num_runs = 2000
    truth = alpha / (alpha + beta)
    covered = 0
    for _ in range(num_runs):
        rates = rng.beta(alpha, beta, size=(num_problems, 1))
        _, low, high = success_interval(rng.random((num_problems, num_samples)) < rates)
        covered += low <= truth <= high
    # 2000 runs know the coverage to +- 1 point.
    assert 0.93 <= covered / num_runs <= 0.975


@pytest.mark.parametrize("shape", [(0, 1), (3, 0), (3,)])
def test_no_answers_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="P, K >= 1"):
        success_interval(np.zeros(shape, dtype=bool))
