"""What one token contributes to the objective, which is to rise: three forms."""

from __future__ import annotations

import numpy as np


def clipped_objective(
    ratio_T: np.ndarray,
    advantages_T: np.ndarray,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> np.ndarray:
    """``min(r A, clip(r, 1 - low, 1 + high) A)``; with a dual clip c and A < 0 at least ``c A``.

    The minimum takes the reward away from a step that has gone far enough in the right direction, and never from the way back.
    Sources: GRPO, 2402.03300, eq. 3; two bounds: DAPO, 2503.14476, section 3.1; dual clip: 1912.09729, section 3.
    """
    objective_T = np.minimum(ratio_T * advantages_T, np.clip(ratio_T, 1 - clip_low, 1 + clip_high) * advantages_T)
    if dual_clip is None:
        return objective_T
    return np.where(advantages_T < 0, np.maximum(objective_T, dual_clip * advantages_T), objective_T)


def clipped_objective_gradient(
    ratio_T: np.ndarray,
    advantages_T: np.ndarray,
    upstream_T: np.ndarray,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> np.ndarray:
    """``A`` where nothing is clipped, else 0."""
    return upstream_T * advantages_T * ~is_clipped(ratio_T, advantages_T, clip_low, clip_high, dual_clip)


def is_clipped(
    ratio_T: np.ndarray,
    advantages_T: np.ndarray,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> np.ndarray:
    """bool ``[T]``: no gradient is left: a good token already likelier than ``1 + high``, or a bad one already rarer than
    ``1 - low`` or, with a dual clip c, likelier than c."""
    too_high_T = (advantages_T > 0) & (ratio_T > 1 + clip_high)
    too_low_T = (advantages_T < 0) & (ratio_T < 1 - clip_low)
    too_far_T = (advantages_T < 0) & (ratio_T > (np.inf if dual_clip is None else dual_clip))
    return too_high_T | too_low_T | too_far_T


def cispo_objective(
    logprobs_T: np.ndarray, ratio_T: np.ndarray, advantages_T: np.ndarray, clip_high: float
) -> np.ndarray:
    """``sg(min(r, 1 + high)) A log pi``: the weight is capped, but every token keeps a gradient.

    Source: CISPO, 2506.13585 (MiniMax-M1), section 3.1, eq. 4 and 5, without a lower bound, as they trained it.
    """
    return np.minimum(ratio_T, 1 + clip_high) * advantages_T * logprobs_T


def cispo_objective_gradient(
    logprobs_T: np.ndarray, ratio_T: np.ndarray, advantages_T: np.ndarray, upstream_T: np.ndarray, clip_high: float
) -> np.ndarray:
    """``min(r, 1 + high) A``: the ratio is a weight, not a path for the gradient."""
    return upstream_T * np.minimum(ratio_T, 1 + clip_high) * advantages_T


def policy_gradient_objective(logprobs_T: np.ndarray, advantages_T: np.ndarray) -> np.ndarray:
    """``A log pi``: REINFORCE (Williams, 1992), right as long as the policy is the one that sampled.

    At r = 1 the two forms above have exactly this gradient.
    """
    return advantages_T * logprobs_T


def policy_gradient_objective_gradient(
    logprobs_T: np.ndarray, advantages_T: np.ndarray, upstream_T: np.ndarray
) -> np.ndarray:
    """``A``."""
    return upstream_T * advantages_T
