"""What to expect of groups and of samples, and what a rollout looks like in numbers."""

from __future__ import annotations

from math import comb

import numpy as np

from grpo_zero.reference.groups import is_zero_variance


def zero_variance_probability(success: np.ndarray, group_size: int) -> np.ndarray:
    """``z = p^G + (1-p)^G``: chance that a 0/1 reward gives all G answers the same, so that the group teaches nothing.

    For G = 8: p = 0.01 leaves 8 % of the groups usable, 0.1 leaves 57 %, 0.5 leaves 99 %. With p uniform, E[z] = 2 / (G+1).
    """
    return success**group_size + (1 - success) ** group_size


def zero_variance_probability_gradient(success: np.ndarray, upstream: np.ndarray, group_size: int) -> np.ndarray:
    """``dz/dp = G (p^(G-1) - (1-p)^(G-1))``: negative below p = 1/2, where better answers give more to learn from."""
    power = group_size - 1
    return upstream * group_size * (success**power - (1 - success) ** power)


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """``1 - C(n-c, k) / C(n, k)``: chance that k of the n samples, drawn without replacement, hold a right one.

    The unbiased estimate of Chen et al., 2107.03374, section 2.1. ``n = k`` gives [c > 0], ``k = 1`` gives c/n. Raises
    ValueError unless ``0 <= c <= n`` and ``1 <= k <= n``.
    """
    if not 0 <= num_right <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} of {num_samples} samples with {num_right} right is not defined")
    return 1.0 - comb(num_samples - num_right, k) / comb(num_samples, k)


def binary_advantages(num_right: int, group_size: int) -> tuple[float, float]:
    """0/1 rewards with c of G right, population std: ``A+ = sqrt((G-c)/c)`` and ``A- = - sqrt(c/(G-c))``; 0 < c < G."""
    num_wrong = group_size - num_right
    return (num_wrong / num_right) ** 0.5, -((num_right / num_wrong) ** 0.5)


def rollout_statistics(
    lengths_PG: np.ndarray, correct_PG: np.ndarray, finished_PG: np.ndarray, rewards_PG: np.ndarray
) -> dict[str, float]:
    """Means over all answers of a rollout; right and wrong answers' lengths are absent when there are none."""
    facts = {
        "reward": rewards_PG.mean(),
        "success": correct_PG.mean(),
        "length": lengths_PG.mean(),
        "truncated_share": (~finished_PG).mean(),
        "zero_variance_share": is_zero_variance(rewards_PG).mean(),
    }
    if correct_PG.any():
        facts["length_right"] = lengths_PG[correct_PG].mean()
    if not correct_PG.all():
        facts["length_wrong"] = lengths_PG[~correct_PG].mean()
    return {name: float(value) for name, value in facts.items()}
