"""How tokens are added up: the weight of each token of each answer.

    sequence   w_i = 1 / (B T_i)       GRPO: every answer counts the same, so a long one's tokens count less
    token      w_i = 1 / sum_i T_i     DAPO: every token of the update counts the same
    constant   w_i = 1 / (B L_max)     Dr. GRPO: as token, but other answers' lengths do not matter

1/T_i favours short right answers and lengthens wrong ones, since a long wrong answer is punished less per token (2503.20783,
section 3.1). B and T_i count the answers that enter the loss and no others: an answer left out is left out above and below.
"""

from __future__ import annotations

import numpy as np


def token_weights(lengths_B: np.ndarray, average: str, max_length: int) -> np.ndarray:
    """``[B]``: weight of each token of answer i. The loss is ``sum_i w_i sum_t loss_it``: a sum, so it can be split anywhere.

    Args:
        lengths_B: tokens of each answer in the update; an answer of none has weight 0 and is not counted.
        average: ``sequence``, ``token`` or ``constant``.
        max_length: L_max, longest answer that could have been given.
    """
    num_answers = (lengths_B > 0).sum()
    weights = []
    for length in lengths_B:
        divisor = {"sequence": num_answers * length, "token": lengths_B.sum(), "constant": num_answers * max_length}
        weights.append(1.0 / divisor[average] if length > 0 else 0.0)
    return np.array(weights)
