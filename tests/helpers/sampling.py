"""What the sampling strategies are judged on: prompts, ways to draw, and when answers are the same."""

from __future__ import annotations

import pytest

from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.types import Completion
from helpers.tiny import token_mask

PROMPTS = [[5, 9, 2], [8], [7, 3, 30, 17, 3, 44, 10, 1, 1, 1], [21, 22, 40]]
"""Unequal lengths; stop ids stand inside the third and at the end of the fourth."""
STOP_IDS = frozenset({3, 17, 40, 41, 42})
MASK_V = token_mask(without=[0, 11, 42, 59, 60])
MODES = {
    "greedy": SamplingParams(10, temperature=0.0),
    "sampled": SamplingParams(14),
    "cold": SamplingParams(10, temperature=0.5),
    "top-k": SamplingParams(10, top_k=7),
    "top-p": SamplingParams(10, temperature=1.3, top_p=0.8),
    "one token": SamplingParams(1),
}


def assert_same(found: list[list[Completion]], expected: list[list[Completion]]) -> None:
    for found_G, expected_G in zip(found, expected, strict=True):
        for a, b in zip(found_G, expected_G, strict=True):
            assert (a.prompt_index, a.sample_index) == (b.prompt_index, b.sample_index)
            assert a.token_ids == b.token_ids
            assert a.finish_reason == b.finish_reason
            assert a.logprobs == pytest.approx(b.logprobs, rel=1e-5, abs=1e-5)
