"""How the tokens of an update are added up."""

from __future__ import annotations

import torch
from torch import Tensor


def token_weights(lengths_B: Tensor, average: str, max_length: int) -> Tensor:
    """The weight of each token of each completion; the loss is a weighted sum, so micro-batches cannot change it.

    Args:
        lengths_B: tokens of every completion that enters the update, those that will not be forwarded included. A completion
            that is left out of the loss is left out here as well: above and below.
        average: ``sequence``: ``1 / (B T_i)``, GRPO, 2402.03300, eq. 3. ``token``: ``1 / sum T``, over the whole update: DAPO,
            2503.14476, section 3.3. ``constant``: ``1 / (B L_max)``, Dr. GRPO, 2503.20783, section 3.2.
        max_length: L_max, longest completion that could have been sampled.

    Returns:
        float64 ``[B]``; 0 for a completion without tokens, which is not counted in B either.
    """
    lengths_B = lengths_B.double()
    num_completions = (lengths_B > 0).sum().double()
    divisor_B = {
        "sequence": num_completions * lengths_B,
        "token": lengths_B.sum().expand_as(lengths_B),
        "constant": (num_completions * max_length).expand_as(lengths_B),
    }[average]
    return torch.where(lengths_B > 0, 1.0 / divisor_B, 0.0)
