"""The same judges on a GPU: skipped where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.tiny import SPECS, GradientCatcher, policy_of, random_rows, tiny_decoder

from grpo_zero.config import TrainingConfig
from grpo_zero.model.attention import DenseMask, GroupLayout, PackedGroups, dense_mask, packed_positions
from grpo_zero.presets import PRESETS, AlgorithmConfig, with_preset
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.naive import naive_generate
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

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


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("is_on_policy", [True, False])
def test_updates_equal_the_cpus(preset: str, is_on_policy: bool) -> None:
    algorithm = AlgorithmConfig(**with_preset({"preset": preset, "kl_weight": 0.2}))
    rows = [
        replace(row, reference_logprobs=[-2.0] * len(row.completion_ids))
        for row in weigh(random_rows(5, [3, 2, 1, 4]), algorithm.average, 9)
    ]
    found = []
    for device in ("cpu", "cuda"):
        decoder = tiny_decoder("qwen2").to(device)
        catcher = GradientCatcher(decoder)
        loss = GRPOLoss(algorithm=algorithm, is_on_policy=is_on_policy)
        config = TrainingConfig(max_grad_norm=1e9, micro_batch_size=3)
        facts = update(policy_of(decoder), catcher, rows, loss, learning_rate=1.0, config=config)
        found.append((facts, torch.cat([g.flatten().cpu() for g in catcher.gradients.values()])))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-3, abs=1e-5)
    scale = found[0][1].abs().max().item()
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-3, atol=1e-4 * scale)


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
