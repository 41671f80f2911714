"""P06: the sampler's log-probs are the trainer's, before and right after updates, for what was sampled."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.tiny import GradientCatcher, policy_of, token_mask

from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.batch import TrainRow, pack
from grpo_zero.train.logprobs import chunked_logprobs
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import DemonstrationLoss, GRPOLoss
from grpo_zero.train.update import update

PROMPTS = [[5, 9, 2], [8], [7, 3, 30, 17, 3, 44, 10]]
STOP_IDS = frozenset({3, 17, 40})
MASK_V = token_mask(without=[11, 59, 60])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_agree_before_and_after_each_update(decoder: Decoder, temperature: float) -> None:
    policy = policy_of(decoder, MASK_V)
    engine = Engine(decoder, STOP_IDS, MASK_V, num_slots=5)
    optimizer = AdamW(decoder.named_parameters())
    config = TrainingConfig(micro_batch_tokens=40)
    params = SamplingParams(9, temperature)
    earlier: list[float] = []
    for step in range(3):
        completions_PG = engine.generate(PROMPTS, 4, params, seed_key=(0, "sample", step))
        rows = [
            TrainRow(p, PROMPTS[p], c.token_ids, float(advantage), c.logprobs)
            for p, group in enumerate(completions_PG)
            for c, advantage in zip(group, np.linspace(-1, 1, len(group)), strict=True)
        ]
        batch = pack(rows, decoder.device)
        with torch.no_grad():
            hidden_TE = decoder(batch.tokens_T, batch.positions_T, batch.attend)
            logprobs_C = chunked_logprobs(
                hidden_TE[batch.predictor_C],
                decoder.head_weight_VE,
                batch.completion.targets_C,
                temperature,
                MASK_V,
                16,
            )
        torch.testing.assert_close(logprobs_C, batch.completion.sampled_logprobs_C, rtol=1e-5, atol=1e-5)
        facts = update(
            policy,
            optimizer,
            weigh(rows, "token", 9),
            GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True),
            learning_rate=0.01,
            config=config,
            temperature=temperature,
        )
        assert facts["logprob_gap"] < 1e-5
        assert logprobs_C[:8].tolist() != earlier, "the updates moved the policy"
        earlier = logprobs_C[:8].tolist()


def test_a_stale_sampler_would_show(decoder: Decoder) -> None:
    """The gap that the run reports is not small by construction."""
    [group] = Engine(decoder, STOP_IDS, None).generate(PROMPTS[:1], 2, SamplingParams(9))
    rows = [TrainRow(0, PROMPTS[0], c.token_ids, 1.0, c.logprobs) for c in group]
    with torch.no_grad():
        decoder.layers[0].mlp.down.weight.mul_(1.05)
    facts = update(
        policy_of(decoder),
        GradientCatcher(decoder),
        rows,
        DemonstrationLoss(),
        learning_rate=0.0,
        config=TrainingConfig(),
    )
    assert facts["logprob_gap"] > 1e-3


@pytest.mark.parametrize("length", [5, 50])
def test_a_row_means_the_same_alone_and_beside_longer_ones(decoder: Decoder, length: int) -> None:
    """T07, L19: lengths 5 and 50 in one stream, and each alone."""
    rng = np.random.default_rng(length)
    prompts = {5: rng.integers(61, size=5).tolist(), 50: rng.integers(61, size=50).tolist()}
    engine = Engine(decoder, frozenset(), None)
    together = engine.generate(list(prompts.values()), 2, SamplingParams(6))
    row = together[list(prompts).index(length)][0]
    batch = pack([TrainRow(0, prompts[length], row.token_ids, 1.0)], decoder.device)
    with torch.no_grad():
        hidden_TE = decoder(batch.tokens_T, batch.positions_T, batch.attend)
        alone_C = chunked_logprobs(
            hidden_TE[batch.predictor_C], decoder.head_weight_VE, batch.completion.targets_C, 1.0, None, 16
        )
    assert row.logprobs == pytest.approx(alone_C.tolist(), rel=1e-5, abs=1e-5)
