"""How an answer's reward becomes its advantage: compare it with its group, then perhaps scale.

Two choices. The *baseline* is what a reward is compared with:

    mean            c_i = R_i - mean(R_1 .. R_G)                        GRPO, 2402.03300, section 4.1.2
    leave_one_out   c_i = R_i - mean(the other G-1) = G/(G-1) (R_i - mean)     RLOO, 2402.14740

and the *scale* is what the difference is measured in:

    none            A_i = c_i                                           Dr. GRPO, 2503.20783, section 3.2
    group_std       A_i = c_i / (std of the group's R + eps)            GRPO
    batch_std       A_i = c_i / (std of all R of the step + eps)        2508.08221, section 4.1
    whiten          A_i = c_i / (std of all c of the step + eps)        REINFORCE++-baseline, 2501.03262, section 3

(A group's c sum to 0, so whitening has no mean left to take out.) The standard deviation divides by n (``population``, ours)
or by n - 1 (``sample``, TRL and verl); for rewards [1, 0, 0, 0] that is +1.732 / -0.577 against +1.5 / -0.5.
"""

from __future__ import annotations

import numpy as np

from grpo_zero.reference.groups import is_zero_variance

STD_EPSILON = 1e-4


def advantages(
    rewards_PG: np.ndarray, baseline: str = "mean", scale: str = "group_std", std: str = "population"
) -> np.ndarray:
    """Advantages ``[P, G]``: ``c / (s + eps)`` as chosen above.

    A group whose rewards are all equal gets exactly 0. NaN marks an answer without a usable reward: the statistics are those of
    the rest, and its own advantage is 0.
    """
    centred_PG = _centred(rewards_PG, baseline)
    divisor_P = _divisors(rewards_PG, centred_PG, scale, std)
    return np.nan_to_num(centred_PG / divisor_P[:, None], nan=0.0)


def advantages_gradient(
    rewards_PG: np.ndarray,
    upstream_PG: np.ndarray,
    baseline: str = "mean",
    scale: str = "group_std",
    std: str = "population",
) -> np.ndarray:
    """How advantages move with rewards; answers of a group hold each other down.

    With ``A = c / d``, ``dA = dc / d - A dd / d``; and for a standard deviation ``s`` of n numbers x with divisor m (n or
    n - 1), ``ds / dx_j = (x_j - mean) / (m s)``.
    """
    usable_PG, is_flat_P = ~np.isnan(rewards_PG), is_zero_variance(rewards_PG)
    upstream_PG = np.where(usable_PG, upstream_PG, 0.0)
    centred_PG = np.nan_to_num(_centred(rewards_PG, baseline), nan=0.0)
    divisor_P1 = _divisors(rewards_PG, centred_PG, scale, std)[:, None]
    to_centred_PG = upstream_PG / divisor_P1
    to_divisor_P = -(upstream_PG * centred_PG / divisor_P1**2).sum(1)
    to_rewards_PG = np.zeros_like(centred_PG)
    if scale == "group_std":
        for p, row in enumerate(rewards_PG):
            to_rewards_PG[p] += to_divisor_P[p] * _std_gradient(row, std)
    if scale == "batch_std":
        to_rewards_PG += to_divisor_P.sum() * _std_gradient(rewards_PG, std)
    if scale == "whiten":
        usable_centred_PG = np.where(usable_PG, centred_PG, np.nan)
        to_centred_PG = to_centred_PG + to_divisor_P.sum() * _std_gradient(usable_centred_PG, std)
    for p, row in enumerate(usable_PG):
        if is_flat_P[p]:
            continue
        num_usable = row.sum()
        factor = num_usable / (num_usable - 1) if baseline == "leave_one_out" else 1.0
        mean = to_centred_PG[p][row].sum() / num_usable
        to_rewards_PG[p] += np.where(row, factor * (to_centred_PG[p] - mean), 0.0)
    return to_rewards_PG


def _centred(rewards_PG: np.ndarray, baseline: str) -> np.ndarray:
    centred_PG, is_flat_P = np.full(rewards_PG.shape, np.nan), is_zero_variance(rewards_PG)
    for p, rewards_G in enumerate(rewards_PG):
        usable_G = ~np.isnan(rewards_G)
        num_usable = usable_G.sum()
        if is_flat_P[p]:
            centred_PG[p, usable_G] = 0.0
            continue
        difference_G = rewards_G[usable_G] - rewards_G[usable_G].mean()
        centred_PG[p, usable_G] = difference_G * {"mean": 1.0, "leave_one_out": num_usable / (num_usable - 1)}[baseline]
    return centred_PG


def _divisors(rewards_PG: np.ndarray, centred_PG: np.ndarray, scale: str, std: str) -> np.ndarray:
    if scale == "none":
        return np.ones(len(rewards_PG))
    if scale == "group_std":
        return np.array([_std(rewards_G, std) for rewards_G in rewards_PG]) + STD_EPSILON
    spread = {"batch_std": rewards_PG, "whiten": np.where(np.isnan(rewards_PG), np.nan, centred_PG)}[scale]
    return np.full(len(rewards_PG), _std(spread, std) + STD_EPSILON)


def _std(values: np.ndarray, std: str) -> float:
    """``sqrt(sum (x - mean)^2 / m)`` of what is not NaN; 0 for fewer than two values."""
    values = values[~np.isnan(values)]
    divisor = {"population": len(values), "sample": len(values) - 1}[std]
    return float(np.sqrt(((values - values.mean()) ** 2).sum() / divisor)) if len(values) > 1 else 0.0


def _std_gradient(values: np.ndarray, std: str) -> np.ndarray:
    usable = ~np.isnan(values)
    divisor = {"population": usable.sum(), "sample": usable.sum() - 1}[std]
    spread = _std(values, std)
    if spread == 0.0:
        return np.zeros(values.shape)
    return np.where(usable, (values - values[usable].mean()) / (divisor * spread), 0.0)
