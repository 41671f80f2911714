"""Memory that layers write over."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny import policy_of, random_rows, tiny_decoder

from grpo_zero.config import Config, TrainingConfig
from grpo_zero.model.scratch import Scratch
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update


def test_a_name_is_written_over_and_grows() -> None:
    scratch, like = Scratch(), torch.ones(1)
    small, other = scratch.take("a", (2, 3), like), scratch.take("b", (2, 3), like)
    assert small.shape == (2, 3)
    assert small.is_contiguous()
    assert scratch.take("a", (3, 2), like).data_ptr() == small.data_ptr() != other.data_ptr()
    assert scratch.take("a", (1, 2), like).data_ptr() == small.data_ptr()
    assert scratch.take("a", (2, 3), like.double()).dtype == torch.float64
    large = scratch.take("a", (4, 4), like)
    assert large.shape == (4, 4)
    assert scratch.take("a", (2, 3), like).data_ptr() == large.data_ptr()


@pytest.mark.parametrize("mode", ["none", "selective", "full"])
def test_an_update_writes_over_it_and_leaves_nothing(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take = Scratch.take
    weights = []
    for is_kept in (True, False):
        held: list[torch.Tensor] = []

        def watched(
            self: Scratch,
            name: str,
            shape: tuple[int, ...],
            like: torch.Tensor,
            kept: bool = is_kept,
            held: list[torch.Tensor] = held,
        ) -> torch.Tensor:
            found = take(self, name, shape, like) if kept else like.new_empty(shape)
            held.append(found)  # so that only scratch can give its place again
            return found.fill_(torch.nan)  # whatever was there

        monkeypatch.setattr(Scratch, "take", watched)
        decoder = tiny_decoder("qwen2")
        decoder.recompute_activations(mode)
        training = TrainingConfig(micro_batch_size=2)
        rows = weigh(random_rows(0, [3, 2]), "token", 10)
        loss = GRPOLoss(algorithm=Config().algorithm, is_on_policy=True)
        update(policy_of(decoder), make_optimizer(decoder, training), rows, loss, 1e-2, training)
        weights.append([p.detach().clone() for p in decoder.parameters()])
        assert not decoder.scratch._buffers
        assert (len({x.data_ptr() for x in held}) < len(held)) == is_kept
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    assert all(p.isfinite().all() for p in weights[0])
