"""What is added to a reward before answers are compared."""

from __future__ import annotations

import numpy as np


def overlong_punishment(lengths: np.ndarray, max_length: int, buffer: int) -> np.ndarray:
    """0 up to ``L_max - L_cache`` tokens, then ``((L_max - L_cache) - L) / L_cache``, and -1 beyond ``L_max``.

    Source: DAPO, 2503.14476, section 3.4, eq. 13 (soft overlong punishment).

    Args:
        lengths: tokens, any shape.
        max_length: L_max.
        buffer: L_cache, tokens; at least 1.

    Returns:
        Between -1 and 0, of the shape of ``lengths``: to be added to the reward.
    """
    return -np.clip((lengths - (max_length - buffer)) / buffer, 0.0, 1.0)
