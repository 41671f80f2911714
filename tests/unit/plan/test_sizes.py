"""The arithmetic against what torch really holds."""

from __future__ import annotations

import pytest
import torch
from helpers.kept import keeping_in
from helpers.tiny import SPECS
from torch import Tensor

from grpo_zero.model.attention import GroupLayout, PackedGroups, packed_positions
from grpo_zero.model.decoder import Decoder
from grpo_zero.plan import sizes
from grpo_zero.rollout.cache import PromptStore, SlotCache
from grpo_zero.rollout.prefill import PREFILL_TOKENS
from grpo_zero.train.logprobs import CACHED_LOGITS
from grpo_zero.train.optimizer import AdamW, HostAdamW

CPU = torch.device("cpu")
ITEMS = {torch.float32: 4, torch.bfloat16: 2}
LAYOUTS = {
    "one group": [GroupLayout(20, (30, 40))],
    "padding everywhere": [GroupLayout(20, (30, 40)), GroupLayout(7, (3,)), GroupLayout(9, ())],
    "equal lengths": [GroupLayout(5, (6, 6, 6, 6))],
}


def storages(tensors: list[Tensor]) -> int:
    return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values())


def stream_of(groups: list[GroupLayout]) -> sizes.Stream:
    lengths = [length for group in groups for length in group.completion_lengths]
    prompts = [group.prompt_length for group in groups]
    return sizes.Stream(sum(g.num_tokens for g in groups), len(groups), max(prompts), len(lengths), max(lengths))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("mode", ["none", "selective", "full"])
@pytest.mark.parametrize("dtype", ITEMS)
def test_forward_keeps_what_is_planned(
    family: str, dtype: torch.dtype, mode: str, device: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a GPU: what its path keeps here."""
    groups, spec = LAYOUTS[layout], SPECS[family]
    decoder = Decoder(spec).to(dtype)
    decoder.recompute_activations(mode)
    weights = {parameter.untyped_storage().data_ptr() for parameter in decoder.parameters()}
    kept: list[Tensor] = []
    positions_T = torch.from_numpy(packed_positions(groups))
    attend = PackedGroups(groups, CPU, is_compact=device == "cpu")
    with keeping_in(kept, monkeypatch):
        decoder(torch.zeros(len(positions_T), dtype=torch.int64), positions_T, attend)
    found = storages([x for x in kept if x.untyped_storage().data_ptr() not in weights])
    stream, item = stream_of(groups), ITEMS[dtype]
    mask = 0 if mode == "full" else sizes.mask_bytes(spec, stream, item)  # which full recomputation does not see
    assert found == sizes.kept_bytes(spec, stream, item, mode, device) + (mask if device == "cuda" else 0)


@pytest.mark.parametrize("mode", ["none", "selective", "full"])
def test_only_a_cpu_keeps_the_stream_alone(mode: str) -> None:
    """``PackedGroups`` has no other backward on any other device."""
    spec, stream = SPECS["qwen2"], sizes.Stream(90, 1, 20, 2, 40)
    on = {device: sizes.kept_bytes(spec, stream, 4, mode, device) for device in ("cpu", "mps", "cuda")}
    assert on["mps"] == on["cuda"]
    assert (on["cpu"] < on["mps"]) == (mode != "full")


@pytest.mark.parametrize("bits", [32, 8])
@pytest.mark.parametrize("dtype", ITEMS)
def test_optimizer_states_are_what_is_planned(family: str, dtype: torch.dtype, bits: int) -> None:
    decoder, spec = Decoder(SPECS[family]).to(dtype), SPECS[family]
    optimizer = HostAdamW(decoder.named_parameters(), moment_bits=bits)
    rests = sum(x.nbytes for name, x in optimizer.tensors().items() if name.endswith("/rest"))
    assert rests == sizes.rest_bytes(sizes.parameter_sizes(spec), ITEMS[dtype])
    assert sum(x.nbytes for x in optimizer.tensors().values()) - rests == sizes.moment_bytes(
        sizes.parameter_sizes(spec), bits
    )
    assert sum(x.nbytes for x in optimizer.gradients.sums.values()) == 4 * spec.num_parameters
    plain = AdamW(decoder.named_parameters(), moment_bits=bits)
    assert plain.tensors().keys() == optimizer.tensors().keys()
    assert sizes.parameter_sizes(spec) == {name: p.numel() for name, p in decoder.named_parameters()}


@pytest.mark.parametrize("dtype", ITEMS)
def test_keys_and_values_are_what_is_planned(family: str, dtype: torch.dtype) -> None:
    spec, item, lengths = SPECS[family], ITEMS[dtype], [6, 6, 6]
    cache = SlotCache(spec, 5, 11, dtype, CPU)
    assert cache.keys_LSKTD.nbytes + cache.values_LSKTD.nbytes == sizes.kv_bytes(spec, 5 * 11, item)
    store = PromptStore(lengths, CPU)
    groups = [GroupLayout(length, ()) for length in lengths]
    with torch.inference_mode():
        decoder = Decoder(spec).to(dtype)
        decoder(torch.zeros(18, dtype=torch.int64), torch.from_numpy(packed_positions(groups)), store)
    held = [x for layer in (*store.keys_LP, *store.values_LP) for x in layer]
    assert storages(held) == sizes.kv_bytes(spec, 18, item), "nothing else stays alive with them"


def test_prompts_are_prefilled_in_streams_of_the_planned_size() -> None:
    assert sizes.PREFILL_TOKENS == PREFILL_TOKENS


def test_as_many_logits_at_a_time_become_probabilities_as_planned() -> None:
    assert sizes.CACHED_LOGITS == CACHED_LOGITS
