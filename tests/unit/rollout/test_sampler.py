"""The sampled distribution is the one whose log-probs are reported, for every temperature and truncation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from grpo_zero.rollout.sampler import SamplingParams, sample

VOCAB = 12
MODES = {
    "plain": SamplingParams(1),
    "cold": SamplingParams(1, temperature=0.6),
    "hot": SamplingParams(1, temperature=3.0),
    "top-k": SamplingParams(1, top_k=4),
    "top-k of one": SamplingParams(1, top_k=1),
    "top-k above the vocabulary": SamplingParams(1, top_k=100),
    "top-p": SamplingParams(1, top_p=0.7),
    "tiny top-p": SamplingParams(1, top_p=1e-6),
    "all three": SamplingParams(1, temperature=1.5, top_k=6, top_p=0.8),
}


def logits_V(seed: int) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 1.5


def reference_probs(logits: torch.Tensor, params: SamplingParams, has_token: np.ndarray | None) -> np.ndarray:
    """Softmax of the tempered logits; top-k, then top-p of what is left, by a loop over the sorted ids; float64."""
    scaled = logits.double().numpy() / params.temperature
    allowed = np.ones(VOCAB, dtype=bool) if has_token is None else has_token.copy()
    probs = np.where(allowed, np.exp(scaled - scaled[allowed].max()), 0.0)
    probs /= probs.sum()
    order = sorted(np.flatnonzero(allowed), key=lambda v: -probs[v])
    if params.top_k is not None:
        order = order[: params.top_k]
    kept, mass, total = [], 0.0, probs[order].sum()
    for v in order:
        if mass >= params.top_p:
            break
        kept.append(v)
        mass += probs[v] / total
    out = np.zeros(VOCAB)
    out[kept] = probs[kept] / probs[kept].sum()
    return out


@pytest.mark.parametrize("mask", [None, np.arange(VOCAB) % 3 != 0], ids=["all ids", "two thirds"])
@pytest.mark.parametrize("params", MODES.values(), ids=MODES)
def test_frequencies_and_logprobs_are_the_reference_distribution(params: SamplingParams, mask) -> None:
    num = 20_000
    uniforms_S = (torch.arange(num, dtype=torch.float64) + 0.5) / num
    logits = logits_V(seed=len(MODES))
    has_token_V = None if mask is None else torch.from_numpy(mask)
    ids_S, logprobs_S = sample(logits.expand(num, -1), uniforms_S, params, has_token_V)
    expected = reference_probs(logits, params, mask)
    frequency = np.bincount(ids_S.numpy(), minlength=VOCAB) / num
    # Evenly spread uniforms give each id its share to one or two draws; a zero stays a zero.
    assert np.abs(frequency - expected).max() < 3 / num
    assert (frequency[expected == 0] == 0).all()
    seen = np.unique(ids_S.numpy())
    reported = np.array([logprobs_S[ids_S == v][0].item() for v in seen])
    np.testing.assert_allclose(reported, np.log(expected[seen]), rtol=1e-5, atol=1e-5)
    assert np.exp(reported).sum() == pytest.approx(1.0, abs=1e-4)


def test_greedy_takes_the_largest_and_reports_its_logprob_at_temperature_one() -> None:
    logits_SV = torch.stack([logits_V(1), logits_V(2)])
    ids_S, logprobs_S = sample(logits_SV, torch.full((2,), 0.999, dtype=torch.float64), SamplingParams(1, 0.0), None)
    assert ids_S.tolist() == logits_SV.argmax(-1).tolist()
    torch.testing.assert_close(logprobs_S, logits_SV.log_softmax(-1).max(-1).values)


def test_greedy_skips_ids_without_a_token() -> None:
    logits = logits_V(1)
    has_token_V = torch.ones(VOCAB, dtype=torch.bool)
    has_token_V[logits.argmax()] = False
    ids_S, _ = sample(logits[None], torch.zeros(1, dtype=torch.float64), SamplingParams(1, 0.0), has_token_V)
    assert ids_S.item() == logits.masked_fill(~has_token_V, -math.inf).argmax().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 2), (math.nextafter(1.0, 0.0), 5)])
def test_the_ends_of_the_unit_interval_never_give_an_impossible_id(uniform, expected, precision, dtype) -> None:
    # Ids 0, 1 and from 6 on have no chance: without a token, or a logit so low that its probability is 0.
    logits = torch.tensor([9.0, -1e4, 0.0, 1.0, -1.0, 0.5, -1e4, 9.0, -1e4], dtype=dtype)
    has_token_V = torch.tensor([False, True, True, True, True, True, True, False, True])
    uniforms_S = torch.tensor([uniform], dtype=precision)  # in float32 the upper one is 1
    ids_S, logprobs_S = sample(logits[None], uniforms_S, MODES["plain"], has_token_V)
    assert ids_S.item() == expected
    assert logprobs_S.isfinite().all()


def test_bf16_logits_are_computed_in_float32() -> None:
    logits_SV = logits_V(3).bfloat16()[None]
    uniforms_S = torch.tensor([0.3], dtype=torch.float64)
    ids, logprobs = sample(logits_SV, uniforms_S, MODES["plain"], None)
    expected = logits_SV.float().log_softmax(-1)
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, expected.gather(-1, ids[:, None])[:, 0])


def test_a_row_depends_on_its_own_logits_and_uniform_alone() -> None:
    logits_SV = torch.stack([logits_V(seed) for seed in range(5)])
    uniforms_S = torch.tensor([0.1, 0.9, 0.5, 0.3, 0.7], dtype=torch.float64)
    for params in MODES.values():
        together = sample(logits_SV, uniforms_S, params, None)[0].tolist()
        alone = [sample(logits_SV[s : s + 1], uniforms_S[s : s + 1], params, None)[0].item() for s in range(5)]
        assert together == alone
