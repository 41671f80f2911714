"""What each token contributes to the objective, which is to rise."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_objective(
    ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """``min(r A, clip(r, 1 - low, 1 + high) A)``; with a dual clip c, at least ``c A`` where A < 0.

    Sources: GRPO, 2402.03300, eq. 3; separate bounds: DAPO, 2503.14476, section 3.1; dual clip: 1912.09729, section 3. Where r
    is 1 the gradient is that of ``A log pi``, though the value is A whatever was learned.
    """
    clipped_T = ratio_T.clamp(1 - clip_low, 1 + clip_high) * advantages_T
    objective_T = torch.minimum(ratio_T * advantages_T, clipped_T)
    if dual_clip is None:
        return objective_T
    return torch.where(advantages_T < 0, torch.maximum(objective_T, dual_clip * advantages_T), objective_T)


def is_clipped(
    ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """bool ``[T]``: a good token already likelier than ``1 + high``; a bad one rarer than ``1 - low`` or beyond the dual clip."""
    too_high_T = (advantages_T > 0) & (ratio_T > 1 + clip_high)
    out_of_range_T = (ratio_T < 1 - clip_low) | (ratio_T > (torch.inf if dual_clip is None else dual_clip))
    return too_high_T | ((advantages_T < 0) & out_of_range_T)


def cispo_objective(logprobs_T: Tensor, ratio_T: Tensor, advantages_T: Tensor, clip_high: float) -> Tensor:
    """``sg(min(r, 1 + high)) A log pi``: weights are capped, but every token keeps a gradient.

    Source: CISPO, 2506.13585 (MiniMax-M1), section 3.1, eq. 4 and 5, without a lower bound, as they trained it.
    """
    return ratio_T.detach().clamp_max(1 + clip_high) * advantages_T * logprobs_T


def policy_gradient_objective(logprobs_T: Tensor, advantages_T: Tensor) -> Tensor:
    """``A log pi``: REINFORCE (Williams, 1992). No ratio, so right only as long as the policy is the one that sampled.

    With A = 1 it is the log-likelihood of demonstrations.
    """
    return advantages_T * logprobs_T
