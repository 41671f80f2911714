"""From the rewards of a question's answers to their advantages."""

from __future__ import annotations

import numpy as np

STD_EPSILON = 1e-4


def group_advantages(rewards_PG: np.ndarray) -> np.ndarray:
    """Each reward compared with its group: ``A_i = (R_i - mean) / (std + 1e-4)``, population std.

    Source: GRPO, 2402.03300, section 4.1.2 (outcome supervision), with GRPO-Zero's conventions: 1. population, not sample,
    standard deviation; 2. 1e-4 is added to it; 3. a group whose rewards are all equal (largest minus smallest is 0) gets
    exactly 0, where rounding in mean and std could leave a remainder.

    Args:
        rewards_PG: rewards, any real dtype; computed in float64. NaN marks a completion without a usable reward: the statistics
            are those of the rest and its own advantage is 0.

    Returns:
        float64 ``[P, G]``.
    """
    rewards_PG = np.asarray(rewards_PG, dtype=np.float64)
    usable_PG = ~np.isnan(rewards_PG)
    count_P1 = np.maximum(usable_PG.sum(1, keepdims=True), 1)
    filled_PG = np.where(usable_PG, rewards_PG, 0.0)
    centred_PG = np.where(usable_PG, rewards_PG - filled_PG.sum(1, keepdims=True) / count_P1, 0.0)
    std_P1 = np.sqrt((centred_PG**2).sum(1, keepdims=True) / count_P1)
    flat_P1 = is_zero_variance(rewards_PG)[:, None]
    return np.where(flat_P1 | ~usable_PG, 0.0, centred_PG / (std_P1 + STD_EPSILON))


def is_zero_variance(rewards_PG: np.ndarray) -> np.ndarray:
    """bool ``[P]``: all (usable) rewards of the group are equal, so it teaches nothing. Judged by max - min, never by std."""
    rewards_PG = np.asarray(rewards_PG, dtype=np.float64)
    usable_PG = ~np.isnan(rewards_PG)
    high_P = np.where(usable_PG, rewards_PG, -np.inf).max(1)
    low_P = np.where(usable_PG, rewards_PG, np.inf).min(1)
    return high_P <= low_P
