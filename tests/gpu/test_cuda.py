"""The same judges on a GPU: skipped where there is none."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny import SPECS, tiny_decoder

from grpo_zero.model.attention import DenseMask, GroupLayout, PackedGroups, dense_mask, packed_positions
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.naive import naive_generate
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.optimizer import AdamW

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
GROUPS = [GroupLayout(5, (3, 0, 7)), GroupLayout(9, (1,)), GroupLayout(4, (6, 6, 2, 8))]
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10], [11], [5, 6]]


@pytest.mark.parametrize("family", SPECS)
def test_packed_equals_dense(family: str) -> None:
    decoder = tiny_decoder(family).cuda()
    tokens_T = torch.randint(0, 20, (sum(group.num_tokens for group in GROUPS),), device="cuda")
    positions_T = torch.from_numpy(packed_positions(GROUPS)).cuda()
    packed = decoder(tokens_T, positions_T, PackedGroups(GROUPS, tokens_T.device))
    dense = decoder(tokens_T, positions_T, DenseMask(torch.from_numpy(dense_mask(GROUPS)).cuda()))
    torch.testing.assert_close(packed, dense, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", SPECS)
@pytest.mark.parametrize("num_slots", [1, 3, None])
def test_engine_equals_naive(family: str, num_slots: int | None) -> None:
    decoder, params = tiny_decoder(family).cuda(), SamplingParams(20, temperature=0.0)
    stop_ids = frozenset({7})
    engine = Engine(decoder, stop_ids, None, num_slots).generate(PROMPTS, 3, params)
    naive = naive_generate(decoder, PROMPTS, 3, params, stop_ids=stop_ids)
    assert [[c.token_ids for c in group] for group in engine] == [[c.token_ids for c in group] for group in naive]


def test_states_on_the_host_change_nothing_in_bf16() -> None:
    torch.manual_seed(0)
    start, grads = torch.randn(33, 7).bfloat16(), torch.randn(5, 33, 7).bfloat16()
    ends = []
    for states_on_host in (False, True):
        weight = torch.nn.Parameter(start.clone().cuda())
        optimizer = AdamW([("weight", weight)], states_on_host=states_on_host)
        for grad in grads:
            weight.grad = grad.cuda()
            optimizer.step(1e-3)
        ends.append(weight.detach().float().cpu())
    torch.testing.assert_close(ends[0], ends[1], atol=1e-6, rtol=1e-2)
