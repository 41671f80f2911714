"""Are two models' successes on the same problems different beyond chance? The problem is the unit, and is its own control."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_zero.observe.intervals import Z_95

CHANCE = 0.05
"""p values below it count as beyond chance."""


class Difference(NamedTuple):
    """Success of one model less that of another."""

    mean: float
    """Over the problems, -1 to 1."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end."""
    num_better: int
    """Problems on which the first model is right more often."""
    num_worse: int
    """Problems on which it is right less often."""
    p_value: float
    """Of ``sign_flip_p``."""


def paired_difference(success_PK: NDArray[np.bool_], other_PJ: NDArray[np.bool_]) -> Difference:
    """Compare two models' right answers to the same P problems, K answers of the one and J of the other each."""
    num_samples, num_others = success_PK.shape[1], other_PJ.shape[1]
    common = math.lcm(num_samples, num_others)
    right_P = success_PK.sum(axis=1) * (common // num_samples)
    other_P = other_PJ.sum(axis=1) * (common // num_others)
    steps_P = right_P.astype(np.int64) - other_P
    low, high = difference_interval(steps_P / common, min(num_samples, num_others))
    num_better, num_worse = int((steps_P > 0).sum()), int((steps_P < 0).sum())
    return Difference(float(steps_P.mean()) / common, low, high, num_better, num_worse, sign_flip_p(steps_P))


def sign_flip_p(differences_P: NDArray[np.int64]) -> float:
    """Two-sided p value of the sign-flip test: no draws, all 2^P assignments of signs are counted.

    Where both models are equally likely to be right on each problem, every difference is as likely as its negative. The p value
    is the share of all assignments of signs whose sum is at least as far from 0 as the one seen (Fisher 1935, section 21). For
    one answer each the differences are -1, 0 and 1, and this is McNemar's exact test: both tails of Binomial(b + c, 1/2).

    Args:
        differences_P: integers, e.g. right answers of the one less those of the other.

    The sum is 2 s - T, with T the sum of the magnitudes and s that of the positive ones; the distribution of s over 0..T grows by
    one problem at a time (Pagano and Tritchler 1983). All terms are positive, so small p values are as exact as large ones.
    """
    magnitudes = np.abs(differences_P[differences_P != 0])
    if magnitudes.size == 0:
        return 1.0
    magnitudes //= np.gcd.reduce(magnitudes)
    total = int(magnitudes.sum())
    chances = np.zeros(total + 1)  # of each s
    chances[0] = 1.0
    for magnitude in magnitudes.tolist():
        chances *= 0.5
        chances[magnitude:] += chances[:-magnitude].copy()
    positive = int(magnitudes[differences_P[differences_P != 0] > 0].sum())
    sums = np.abs(2 * np.arange(total + 1) - total)
    return min(1.0, float(chances[sums >= abs(2 * positive - total)].sum()))


def difference_interval(differences_P: NDArray[np.float64], num_samples: int) -> tuple[float, float]:
    """95 % interval of the mean difference over all problems like these, within -1 to 1.

    Two problems are thought in addition, on which the models differ by 1/sqrt(K), once either way, with K = ``num_samples``:

        m = sum d / (P + 2),    m +- 1.96 sqrt(((sum d^2 + 2/K) / (P + 2) - m^2) / (P + 2)).

    For one answer each this is the adjusted Wald interval of Bonett and Price (2012), which has a width even where no problem
    tells the models apart. For K answers their noise, and with it what is added, is smaller. Simulated coverage is 94 to 99 % for
    16 to 512 problems with 1 to 16 answers each, 99 to 100 % where both are nearly always wrong.
    """
    num = len(differences_P) + 2
    centre = float(differences_P.sum()) / num
    mean_square = (float(np.square(differences_P).sum()) + 2 / num_samples) / num
    half = Z_95 * math.sqrt((mean_square - centre**2) / num)
    return max(-1.0, centre - half), min(1.0, centre + half)
