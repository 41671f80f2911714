"""What is added to rewards before answers are compared."""

from __future__ import annotations

from torch import Tensor


def overlong_punishment(lengths: Tensor, max_length: int, buffer: int) -> Tensor:
    """0 up to ``max_length - buffer`` tokens, then falling in a line to -1 at ``max_length``; float64, to be added to the reward.

    Source: DAPO, 2503.14476, section 3.4, eq. 13 (soft overlong punishment).
    """
    return -((lengths.double() - (max_length - buffer)) / buffer).clamp(0.0, 1.0)
