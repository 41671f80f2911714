"""The engine against naive generation, token for token."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from helpers.sampling import MASK_V, MODES, PROMPTS, STOP_IDS, assert_same
from helpers.tiny import token_mask

from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout import dynamic as dynamic_module
from grpo_zero.rollout import engine as engine_module
from grpo_zero.rollout import static as static_module
from grpo_zero.rollout.c_library import decode_library
from grpo_zero.rollout.cache import bytes_per_slot
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.naive import naive_generate
from grpo_zero.rollout.prefill import PREFILL_TOKENS
from grpo_zero.rollout.sampler import SamplingParams

STRATEGIES = {"dynamic": ("dynamic", "plain"), "static": ("static", "plain"), "compiled": ("dynamic", "auto")}
"""``decode`` and ``kernels`` of an engine."""


@pytest.fixture(params=STRATEGIES)
def decode(request: pytest.FixtureRequest) -> str:
    if request.param == "compiled" and decode_library() is None:
        pytest.skip("needs a C compiler")
    return request.param


def make_engine(
    decoder: Decoder,
    stop_ids: frozenset[int],
    has_token_V: torch.Tensor | None,
    num_slots: int | None = None,
    *,
    decode: str,
) -> Engine:
    engine = Engine(decoder, stop_ids, has_token_V, num_slots, STRATEGIES[decode][1], STRATEGIES[decode][0])
    assert engine.is_compiled == (decode == "compiled")
    return engine


@pytest.mark.parametrize("params", MODES.values(), ids=MODES)
def test_equals_naive_generation_for_every_number_of_slots(
    decoder: Decoder, params: SamplingParams, decode: str
) -> None:
    expected = naive_generate(decoder, PROMPTS, 3, params, stop_ids=STOP_IDS, has_token_V=MASK_V, seed_key=(7, "x", 2))
    for num_slots in (1, 3, 5, None):
        engine = make_engine(decoder, STOP_IDS, MASK_V, num_slots, decode=decode)
        assert_same(engine.generate(PROMPTS, 3, params, seed_key=(7, "x", 2)), expected)
    if params is MODES["sampled"]:  # the comparison saw both ends, and rows that end at different times
        rows = [row for group in expected for row in group]
        assert {row.finish_reason for row in rows} == {"stop", "length"}
        assert len({len(row.token_ids) for row in rows}) > 3


def test_whatever_fresh_memory_holds_is_never_seen(
    decoder: Decoder, decode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places of the cache that are not written yet have weight 0, and 0 times NaN is NaN."""
    engine = make_engine(decoder, STOP_IDS, None, num_slots=5, decode=decode)
    expected = engine.generate(PROMPTS, 3, MODES["sampled"])
    empty = torch.empty

    def poisoned(*args: object, **kwargs: object) -> torch.Tensor:
        tensor = empty(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty", poisoned)
    assert_same(engine.generate(PROMPTS, 3, MODES["sampled"]), expected)


def test_prefilling_in_several_streams_changes_nothing(
    decoder: Decoder, decode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(decoder, STOP_IDS, None, decode=decode)
    expected = engine.generate(PROMPTS, 2, MODES["sampled"])
    monkeypatch.setitem(PREFILL_TOKENS, "cpu", 4)
    assert_same(engine.generate(PROMPTS, 2, MODES["sampled"]), expected)


def test_a_sample_does_not_depend_on_its_siblings_or_the_other_prompts(decoder: Decoder, decode: str) -> None:
    engine = make_engine(decoder, STOP_IDS, None, num_slots=4, decode=decode)
    full = engine.generate(PROMPTS, 5, MODES["sampled"])
    assert_same(engine.generate(PROMPTS[:1], 2, MODES["sampled"]), [full[0][:2]])
    assert len({tuple(row.token_ids) for row in full[0]}) > 1, "siblings have noise of their own"


def test_seed_purpose_and_step_each_change_the_noise(decoder: Decoder, decode: str) -> None:
    engine = make_engine(decoder, frozenset(), None, decode=decode)
    keys = [(0, "sample", 0), (1, "sample", 0), (0, "eval", 0), (0, "sample", 1)]
    texts = [engine.generate([[4, 5]], 1, MODES["sampled"], seed_key=key)[0][0].token_ids for key in keys]
    assert len({tuple(ids) for ids in texts}) == len(keys)
    assert engine.generate([[4, 5]], 1, MODES["sampled"], seed_key=keys[0])[0][0].token_ids == texts[0]


def test_only_generated_tokens_finish_a_row(decoder: Decoder, decode: str) -> None:
    """T08: a stop id in the prompt, even as its last token, ends nothing."""
    engine = make_engine(decoder, STOP_IDS, token_mask(without=sorted(STOP_IDS)), decode=decode)
    completions = engine.generate([[3, 17, 3], [40]], 3, SamplingParams(6))
    for row in (row for group in completions for row in group):
        assert (len(row.token_ids), row.finish_reason) == (6, "length")
        assert not STOP_IDS & set(row.token_ids)


def test_finish_reasons(decoder: Decoder, decode: str) -> None:
    """T15, T01: any stop id ends a row and is kept; a cut row gets no invented end."""
    rows = [
        row
        for group in make_engine(decoder, STOP_IDS, None, decode=decode).generate(PROMPTS, 8, MODES["sampled"])
        for row in group
    ]
    for row in rows:
        assert not STOP_IDS & set(row.token_ids[:-1])
        assert (row.token_ids[-1] in STOP_IDS) == (row.finish_reason == "stop") == row.is_finished
        assert len(row.token_ids) == len(row.logprobs) <= 14
        assert row.is_finished or len(row.token_ids) == 14
    assert len({row.token_ids[-1] for row in rows if row.is_finished}) > 1


def test_a_stop_id_at_the_limit_counts_as_finished(decoder: Decoder, decode: str) -> None:
    row = make_engine(decoder, frozenset(range(61)), None, decode=decode).generate([[1, 2]], 1, SamplingParams(1))[0][0]
    assert (len(row.token_ids), row.finish_reason) == (1, "stop")


def test_ids_without_a_token_are_never_sampled(decoder: Decoder, decode: str) -> None:
    without = list(range(0, 61, 2))
    engine = make_engine(decoder, frozenset(), token_mask(without), decode=decode)
    hot = SamplingParams(12, temperature=50.0)
    sampled = {token for group in engine.generate(PROMPTS, 8, hot) for row in group for token in row.token_ids}
    assert not sampled & set(without)
    assert len(sampled) > 25


def test_logprobs_are_those_of_the_tempered_distribution(decoder: Decoder, decode: str) -> None:
    """N01, against a plain forward over prompt and completion."""
    params = SamplingParams(8, temperature=0.6)
    for prompt, group in zip(
        PROMPTS, make_engine(decoder, STOP_IDS, MASK_V, decode=decode).generate(PROMPTS, 2, params), strict=True
    ):
        for row in group:
            tokens = torch.tensor([*prompt, *row.token_ids])
            with torch.no_grad():
                hidden = decoder(tokens, torch.arange(len(tokens)), DenseCausal())
                logits = decoder.logits(hidden)[len(prompt) - 1 : -1].masked_fill(~MASK_V, -torch.inf) / 0.6
            expected = logits.log_softmax(-1).gather(-1, tokens[len(prompt) :, None])[:, 0]
            assert row.logprobs == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("is_training", [True, False])
def test_samples_in_eval_mode_and_restores_the_mode(decoder: Decoder, decode: str, is_training: bool) -> None:
    """T10, also when sampling fails."""
    decoder.train(is_training)
    modes = []
    decoder.layers[0].register_forward_hook(lambda *_: modes.append(decoder.layers[0].training))
    make_engine(decoder, STOP_IDS, None, decode=decode).generate(PROMPTS, 1, SamplingParams(2))
    assert set(modes) == {False}
    assert decoder.training == decoder.layers[0].training == is_training
    with pytest.raises(IndexError):
        make_engine(decoder, STOP_IDS, None, decode=decode).generate([[10_000]], 1, SamplingParams(2))
    assert decoder.training == is_training


def test_recompute_in_training_does_not_touch_sampling(decoder: Decoder, decode: str) -> None:
    """T11."""
    engine = make_engine(decoder, STOP_IDS, None, decode=decode)
    expected = engine.generate(PROMPTS, 2, MODES["sampled"])
    decoder.recompute_activations("full")
    assert_same(engine.generate(PROMPTS, 2, MODES["sampled"]), expected)


def test_the_cache_is_gone_after_sampling(decoder: Decoder, decode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """M04: the update finds the memory free, without waiting for the garbage collector."""
    caches = []

    module, name = {
        "dynamic": (dynamic_module, "SlotCache"),
        "static": (static_module, "Grid"),
        "compiled": (dynamic_module, "CompiledCache"),
    }[decode]

    class Watched(getattr(module, name)):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            caches.append(weakref.ref(self))

    monkeypatch.setattr(module, name, Watched)
    gc.disable()
    try:
        make_engine(decoder, STOP_IDS, None, decode=decode).generate(PROMPTS, 2, MODES["sampled"])
        assert [cache() for cache in caches] == [None]
    finally:
        gc.enable()


def test_slots_by_memory(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(16)
    spec = decoder.spec
    one = 2 * spec.num_layers * spec.num_kv_heads * spec.head_size * 16 * 4
    assert bytes_per_slot(spec, 16, torch.float32) == one
    monkeypatch.setattr(engine_module, "CPU_CACHE_BYTES", 5 * one + 1)
    engine = Engine(decoder, STOP_IDS, None)
    assert engine._slots_for(100, params) == 5
    assert engine._slots_for(3, params) == 3
    monkeypatch.setattr(engine_module, "CPU_CACHE_BYTES", 1)
    assert engine._slots_for(100, params) == 1


def test_progress_counts_to_the_total_and_policy_step_is_stored(decoder: Decoder, decode: str) -> None:
    seen: list[tuple[int, int]] = []
    completions = make_engine(decoder, STOP_IDS, None, num_slots=2, decode=decode).generate(
        PROMPTS, 2, SamplingParams(5), policy_step=41, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (8, 8)
    assert seen == sorted(set(seen))
    assert {row.policy_step for group in completions for row in group} == {41}


def test_no_prompts_give_no_answers(decoder: Decoder) -> None:
    assert Engine(decoder, STOP_IDS, None).generate([], 4, SamplingParams(5)) == []
