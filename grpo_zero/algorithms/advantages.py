"""From the rewards of a question's answers to their advantages: a baseline, then a scale."""

from __future__ import annotations

import torch
from torch import Tensor

from grpo_zero.algorithms.groups import is_zero_variance

STD_EPSILON = 1e-4


def advantages(rewards_PG: Tensor, baseline: str = "mean", scale: str = "group_std", std: str = "population") -> Tensor:
    """``A = c / (s + 1e-4)``: c is the reward less its baseline, s what it is measured in.

    Sources: baseline ``mean`` with scale ``group_std``: GRPO, 2402.03300, section 4.1.2; ``none``: Dr. GRPO, 2503.20783, section
    3.2; ``batch_std``: 2508.08221, section 4.1; ``whiten``: REINFORCE++-baseline, 2501.03262, section 3; baseline
    ``leave_one_out``: RLOO, 2402.14740. Conventions: 1. a group whose rewards are all equal gets exactly 0, where
    rounding in mean and std could leave a remainder; 2. NaN marks a completion without a usable reward: the statistics are those
    of the rest, and its own advantage is 0.

    Args:
        rewards_PG: rewards, any real dtype.
        baseline: ``mean`` of the group, or ``leave_one_out``, the mean of the group's others.
        scale: ``group_std`` of the rewards, ``batch_std`` of all rewards of the step, ``whiten`` (std of all c), or ``none``.
        std: ``population`` (divide by n) or ``sample`` (by n - 1).

    Returns:
        float64 ``[P, G]``.
    """
    rewards_PG = rewards_PG.double()
    usable_PG = ~rewards_PG.isnan()
    is_alive_PG = usable_PG & ~is_zero_variance(rewards_PG)[:, None]
    centred_PG = _centred(rewards_PG, usable_PG, (1,)) * is_alive_PG
    if baseline == "leave_one_out":
        count_P1 = usable_PG.sum(1, keepdim=True).double()
        centred_PG = centred_PG * (count_P1 / (count_P1 - 1).clamp_min(1))
    if scale == "none":
        return centred_PG
    values_PG = centred_PG if scale == "whiten" else rewards_PG
    spread_PG = _std(values_PG, usable_PG, (1,) if scale == "group_std" else (0, 1), std)
    return centred_PG / (spread_PG + STD_EPSILON)


def _centred(values_PG: Tensor, usable_PG: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Usable values less their mean over ``axes``; 0 where not usable."""
    count = usable_PG.sum(axes, keepdim=True).clamp_min(1)
    filled_PG = torch.where(usable_PG, values_PG, 0.0)
    return torch.where(usable_PG, filled_PG - filled_PG.sum(axes, keepdim=True) / count, 0.0)


def _std(values_PG: Tensor, usable_PG: Tensor, axes: tuple[int, ...], std: str) -> Tensor:
    """Over ``axes``, which stay with size 1; 0 for fewer than two usable values."""
    divisor = usable_PG.sum(axes, keepdim=True) - int(std == "sample")
    return (_centred(values_PG, usable_PG, axes).square().sum(axes, keepdim=True) / divisor.clamp_min(1)).sqrt()
