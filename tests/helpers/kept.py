"""What a forward keeps for backward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor

from grpo_zero.model import decoder
from grpo_zero.model.recompute import recomputed


def keeping_in(kept: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[None]:
    """Within it a forward's kept tensors are added to ``kept``: autograd's, and the inputs of blocks computed again."""

    def seen(function: Callable[[Tensor], Tensor], x: Tensor, draws: bool) -> Tensor:
        kept.append(x)
        return recomputed(function, x, draws)

    monkeypatch.setattr(decoder, "recomputed", seen)
    return torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x), x)[1], lambda x: x)
