"""Which groups can teach anything."""

from __future__ import annotations

import torch
from torch import Tensor


def is_zero_variance(rewards_PG: Tensor) -> Tensor:
    """bool ``[P]``: all usable (not NaN) rewards of the group are equal. Judged by max - min, never by the std."""
    high_P = rewards_PG.nan_to_num(nan=-torch.inf).amax(1)
    low_P = rewards_PG.nan_to_num(nan=torch.inf).amin(1)
    return high_P <= low_P


def is_mixed(correct_PG: Tensor) -> Tensor:
    """bool ``[P]``: some answers of the group are right and some are not. Source: DAPO, 2503.14476, section 3.2, eq. 11."""
    return correct_PG.any(1) & ~correct_PG.all(1)
