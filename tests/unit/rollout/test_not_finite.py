"""A model whose numbers are not finite ends sampling in a sentence: no index behind the vocabulary, no NaN log-probs."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.sampling import MASK_V, MODES, PROMPTS, STOP_IDS
from helpers.tiny import tiny_decoder

from grpo_zero.errors import UserError
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.sampler import SamplingParams, sample

UNIFORMS_S = torch.tensor([0.0, 0.5, 0.999999], dtype=torch.float64)


@pytest.mark.parametrize("params", MODES.values(), ids=MODES)
@pytest.mark.parametrize("fault", [math.nan, math.inf])
def test_a_broken_row_gets_a_log_prob_that_tells_and_leaves_the_others_alone(
    params: SamplingParams, fault: float
) -> None:
    logits_SV = torch.randn(3, 61, generator=torch.Generator().manual_seed(0))
    expected_ids, expected = sample(logits_SV, UNIFORMS_S, params, MASK_V)
    broken_SV = logits_SV.clone()
    broken_SV[1, 7] = fault
    ids, logprobs = sample(broken_SV, UNIFORMS_S, params, MASK_V)
    assert not logprobs[1].isfinite()
    assert 0 <= ids[1] < 61
    for row in (0, 2):
        assert (ids[row], logprobs[row]) == (expected_ids[row], expected[row])
    all_broken = torch.full((3, 61), fault)
    ids, logprobs = sample(all_broken, UNIFORMS_S, params, None)
    assert ((ids >= 0) & (ids < 61)).all()
    assert not logprobs.isfinite().any()


@pytest.mark.parametrize("decode", ["dynamic", "static"])
@pytest.mark.parametrize("mode", ["sampled", "greedy", "top-p", "one token"])
@pytest.mark.parametrize("num_slots", [1, None])
def test_broken_weights_end_sampling_in_a_sentence(decode: str, mode: str, num_slots: int | None) -> None:
    decoder = tiny_decoder("qwen3")
    with torch.no_grad():
        decoder.layers[1].mlp.down.weight[3, 5] = math.nan
    engine = Engine(decoder, STOP_IDS, MASK_V, num_slots, decode=decode)
    with pytest.raises(UserError, match=r"a log-probability of nan at token 1 of an answer to prompt \d.*model.dtype"):
        engine.generate(PROMPTS, 3, MODES[mode])
