"""The compiled step against its twin in PyTorch, and what happens where there is no compiler."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.sampling import PROMPTS, STOP_IDS, assert_same
from helpers.tiny import SPECS, tiny_decoder

from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.lora import add_adapters
from grpo_zero.model.spec import ModelSpec
from grpo_zero.rollout import c_library, compiled
from grpo_zero.rollout.c_library import decode_library
from grpo_zero.rollout.cache import SlotCache
from grpo_zero.rollout.compiled import CompiledCache, can_compile
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.prefill import prefill
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.rollout.scheduler import Move

CPU = torch.device("cpu")
ODD = dataclasses.replace(
    SPECS["qwen2"], width=37, ffn_width=53, num_heads=10, num_kv_heads=2, head_size=6, output_bias=True, mlp_bias=True
)
"""No size a multiple of anything, five heads on a key head, and every bias there is."""
WIDE = dataclasses.replace(SPECS["llama"], width=96, ffn_width=1030, num_kv_heads=4, head_size=64, vocab_size=700)
"""More outputs than one chunk, heads of several vectors."""

needs_compiler = pytest.mark.skipif(decode_library() is None, reason="needs a C compiler")


@pytest.fixture(params=["qwen2", "qwen3", "llama", "odd", "wide"])
def spec(request: pytest.FixtureRequest) -> ModelSpec:
    return {"odd": ODD, "wide": WIDE, **SPECS}[request.param]


def filled(decoder: Decoder) -> Decoder:
    """Random weights that keep the stream's size, so that both ways round alike."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if name.endswith("norm.weight") else noise * parameter.shape[-1] ** -0.5)
    return decoder.eval()


def steps(
    decoder: Decoder,
    cache: SlotCache | CompiledCache,
    prompt_of_slot: Sequence[int],
    tokens_NS: Sequence[Sequence[int]],
) -> torch.Tensor:
    """Feed ``tokens_NS`` one row after another from empty slots on, as ``dynamic.py`` does; the last logits."""
    prompts = [prompt * 7 if index == 1 else prompt for index, prompt in enumerate(PROMPTS)]
    lengths_S = torch.tensor([len(prompts[p]) for p in prompt_of_slot])
    with torch.inference_mode():
        for index in sorted(set(prompt_of_slot)):  # each alone: PyTorch's products depend on how many rows there are
            prefill(decoder, [index], prompts, cache.add_prompt)
        cache.seat(prompt_of_slot)
        for n, tokens_S in enumerate(tokens_NS):
            own_S = np.full(len(prompt_of_slot), n)
            logits_SV = cache.logits(decoder, torch.tensor(tokens_S), lengths_S + n, own_S)
    return logits_SV


def slot_cache(decoder: Decoder, num_slots: int, room: int) -> SlotCache:
    return SlotCache(decoder.spec, num_slots, room, torch.float32, CPU)


def drawn(num_steps: int, num_slots: int) -> list[list[int]]:
    return np.random.default_rng(num_slots).integers(1, 60, size=(num_steps, num_slots)).tolist()


@needs_compiler
@pytest.mark.parametrize("num_slots", [1, 8, 9, 16, 17, 32, 33, 75])
def test_logits_equal_those_of_pytorch(spec: ModelSpec, num_slots: int) -> None:
    decoder = filled(Decoder(spec))
    prompt_of_slot = [slot % 4 for slot in range(num_slots)]
    tokens_NS = drawn(3, num_slots)
    expected = steps(decoder, slot_cache(decoder, num_slots, 5), prompt_of_slot, tokens_NS)
    got = steps(decoder, CompiledCache(decoder, num_slots, 5), prompt_of_slot, tokens_NS)
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)
    assert expected.std() > 0.3


@needs_compiler
def test_many_own_tokens(spec: ModelSpec) -> None:
    """More than one block of columns in the cache."""
    decoder = filled(Decoder(spec))
    tokens_NS = drawn(70, 3)
    expected = steps(decoder, slot_cache(decoder, 3, 70), [0, 2, 0], tokens_NS)
    torch.testing.assert_close(
        steps(decoder, CompiledCache(decoder, 3, 70), [0, 2, 0], tokens_NS), expected, rtol=5e-5, atol=5e-5
    )


@needs_compiler
def test_a_row_is_the_same_bit_for_bit_alone_among_others_and_on_any_threads(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = filled(Decoder(spec))
    tokens_NS, prompt_of_slot = drawn(4, 40), [slot % 4 for slot in range(40)]
    together = steps(decoder, CompiledCache(decoder, 40, 6), prompt_of_slot, tokens_NS)
    for slot in (0, 7, 31, 39):
        alone = steps(decoder, CompiledCache(decoder, 1, 6), [prompt_of_slot[slot]], [[row[slot]] for row in tokens_NS])
        assert torch.equal(alone[0], together[slot])
    for num_threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda num_threads=num_threads: num_threads)
        assert torch.equal(steps(decoder, CompiledCache(decoder, 40, 6), prompt_of_slot, tokens_NS), together)


@needs_compiler
def test_a_moved_slot_goes_on_as_before() -> None:
    decoder = filled(Decoder(SPECS["qwen2"]))
    cache = CompiledCache(decoder, 3, 6)
    steps(decoder, cache, [0, 3, 2], drawn(3, 3))
    expected = steps(decoder, CompiledCache(decoder, 3, 6), [0, 3, 2], [*drawn(3, 3), [5, 6, 7]])[2]
    cache.move([Move(2, 1)])
    cache.seat([0, 2])
    positions_S = torch.tensor([len(PROMPTS[0]), len(PROMPTS[2])]) + 3
    with torch.inference_mode():
        got = cache.logits(decoder, torch.tensor([5, 7]), positions_S, np.array([3, 3]))[1]
    assert torch.equal(got, expected)
    assert set(cache.prompts) == {0, 2}, "a prompt that no slot answers is dropped"


@needs_compiler
def test_numbers_that_are_not_finite_are_told() -> None:
    decoder = tiny_decoder("qwen2")
    with torch.no_grad():
        decoder.layers[1].mlp.down.weight[3, 4] = float("nan")
    with pytest.raises(UserError, match="not finite"):
        Engine(decoder, STOP_IDS, None).generate(PROMPTS, 1, SamplingParams(4))


@needs_compiler
def test_exponentials_far_from_zero() -> None:
    """Weights of attention that underflow, and gates on both flat ends of the sigmoid."""
    decoder = filled(Decoder(SPECS["qwen2"]))
    with torch.no_grad():
        for block in decoder.layers:
            block.attention.qkv.weight *= 30
            block.mlp.gate_up.weight *= 60
    tokens_NS = drawn(5, 6)
    expected = steps(decoder, slot_cache(decoder, 6, 5), [0, 1, 2, 3, 0, 1], tokens_NS)
    got = steps(decoder, CompiledCache(decoder, 6, 5), [0, 1, 2, 3, 0, 1], tokens_NS)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)


@needs_compiler
def test_it_is_not_for_adapters_other_dtypes_and_fixed_shapes() -> None:
    assert can_compile(Decoder(SPECS["qwen2"]))
    assert not can_compile(Decoder(SPECS["qwen2"]).bfloat16())
    adapted = Decoder(SPECS["qwen2"])
    add_adapters(adapted, rank=2, alpha=4.0, targets=frozenset({"q_proj"}))
    assert not can_compile(adapted)
    decoder = Decoder(SPECS["qwen2"])
    engines = [Engine(decoder, STOP_IDS, None, kernels=kernels) for kernels in ("auto", "measured", "plain")]
    assert [engine.is_compiled for engine in engines] == [True, False, False]
    assert not Engine(decoder, STOP_IDS, None, decode="static").is_compiled


@pytest.fixture
def fresh_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and nothing remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    decode_library.cache_clear()
    yield tmp_path / "grpo-zero"
    decode_library.cache_clear()


@needs_compiler
def test_it_is_compiled_once_a_machine(fresh_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_library() is not None
    (kept,) = fresh_library.iterdir()
    assert kept.suffix == ".so"
    decode_library.cache_clear()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert decode_library() is not None


@needs_compiler
@pytest.mark.parametrize("change", ["source", "flags"])
def test_another_source_or_compiler_is_compiled_anew(
    change: str, fresh_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_library()
    if change == "source":
        changed = tmp_path / "changed.c"
        changed.write_bytes(c_library.SOURCE.read_bytes() + b"\n/* changed */\n")
        monkeypatch.setattr(c_library, "SOURCE", changed)
    else:
        monkeypatch.setattr(c_library, "FLAGS", (*c_library.FLAGS, "-DOTHER"))
    decode_library.cache_clear()
    assert decode_library() is not None
    assert len(list(fresh_library.glob("*.so"))) == 2


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler", sys.executable])
def test_without_a_compiler_pytorch_decodes(
    compiler: str, fresh_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert decode_library() is None
    decoder = tiny_decoder("qwen2")
    engine = Engine(decoder, STOP_IDS, None)
    assert not engine.is_compiled
    plain = Engine(decoder, STOP_IDS, None, kernels="plain")
    assert_same(engine.generate(PROMPTS, 2, SamplingParams(5)), plain.generate(PROMPTS, 2, SamplingParams(5)))
    assert not list(fresh_library.glob("*.so"))


def test_a_cache_folder_that_cannot_be_written_to_is_no_error(fresh_library: Path) -> None:
    fresh_library.write_text("a file in the folder's place")
    assert decode_library() is None


def test_a_damaged_library_is_no_error(fresh_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_rubbish(command: list[str], openmp: str, path: Path) -> None:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"not a library")

    monkeypatch.setattr(c_library, "_compile", write_rubbish)
    assert decode_library() is None


def test_both_files_round_up_to_the_same_multiple() -> None:
    assert f"COLUMNS = {compiled.COLUMNS}," in c_library.SOURCE.read_text()
