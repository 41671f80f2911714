"""pass@k: the chance that at least one of k sampled answers to a problem is right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_zero.observe.intervals import Interval, mean_interval


def pass_at_k(num_right_P: NDArray[np.int64], num_samples: int, k: int) -> NDArray[np.float64]:
    """Each problem's unbiased estimate of pass@k, float64 ``[P]``.

    With c right ones among n answers it is the share of the k-subsets of the answers that hold a right one
    (Chen et al., 2107.03374, equation 1),

        1 - C(n-c, k) / C(n, k) = 1 - prod_{i=0}^{k-1} (n-c-i) / (n-i),

    a product of factors in [0, 1], so nothing overflows; where n - c < k one factor is 0. The plug-in 1 - (1 - c/n)^k is biased.

    Raises:
        ValueError: k below 1 or above the number of answers.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} cannot be estimated from {num_samples} answers: k has to be 1 to {num_samples}")
    places_k = np.arange(k)
    wrong_P1 = (num_samples - np.asarray(num_right_P))[:, None]
    return 1.0 - np.prod(np.maximum(wrong_P1 - places_k, 0) / (num_samples - places_k), axis=1)


def pass_interval(success_PK: NDArray[np.bool_], k: int) -> Interval:
    """Mean pass@k over the problems with its 95 % interval; ``success_PK`` is which of a problem's K answers are right.

    The unit is the problem, as in ``success_interval``, to which it is equal for k = 1. K answers hold K/k separate sets of k,
    and a problem's estimate counts for no more than as many independent ones, the careful end: its variance for a given success
    rate is at most k/K times that of one set (Hoeffding 1948). Simulated coverage is 91 to 98 % for 32 to 200 problems, K of 4 to
    16 and every k. A bootstrap over problems covers less, least near 1, where few problems differ.
    """
    num_samples = success_PK.shape[1]
    return mean_interval(pass_at_k(success_PK.sum(axis=1), num_samples, k), num_samples / k)


def reported_ks(num_samples: int) -> list[int]:
    """1, 2, 4, ... and the number of answers itself."""
    powers = [2**power for power in range(num_samples.bit_length())]
    return sorted({*powers, num_samples})
