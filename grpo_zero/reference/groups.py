"""Which groups can teach anything."""

from __future__ import annotations

import numpy as np


def is_zero_variance(rewards_PG: np.ndarray) -> np.ndarray:
    """bool ``[P]``: all usable rewards of the question are equal: ``max - min = 0``.

    Never judged by the standard deviation: seven float32 copies of 0.1 have a std of 8e-9. NaN is no usable reward.
    """
    usable = [rewards_G[~np.isnan(rewards_G)] for rewards_G in rewards_PG]
    return np.array([len(values) == 0 or values.max() - values.min() == 0.0 for values in usable])


def is_mixed(correct_PG: np.ndarray) -> np.ndarray:
    """bool ``[P]``: ``0 < number right < G``: what dynamic sampling keeps. Source: DAPO, 2503.14476, section 3.2, eq. 11."""
    num_right_P = correct_PG.sum(1)
    return (num_right_P > 0) & (num_right_P < correct_PG.shape[1])
