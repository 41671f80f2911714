"""LoRA's arithmetic against what torch really holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.kept import keeping_in
from helpers.tiny import SPECS, policy_of
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from grpo_zero.config import LORA_TARGETS, Config, LoraConfig, load_config
from grpo_zero.model.attention import GroupLayout, PackedGroups, packed_positions
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.lora import MergedState, add_adapters
from grpo_zero.model.spec import ModelSpec
from grpo_zero.plan import adapters, sizes
from grpo_zero.plan.job import job_of
from grpo_zero.plan.phases import Choice, update_phase
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.optimizer import AdamW, make_optimizer
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

CPU = torch.device("cpu")
ITEMS = {torch.float32: 4, torch.bfloat16: 2}
TARGETS = {
    "all": LORA_TARGETS,
    "attention": ("q_proj", "v_proj", "o_proj"),
    "values": ("v_proj",),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
    "up": ("up_proj",),
    "down": ("down_proj",),
}
GROUPS = [GroupLayout(20, (30, 40)), GroupLayout(7, (3,)), GroupLayout(9, ())]
STREAM = sizes.Stream(tokens=109, prompts=3, prompt_max=20, completions=3, own_max=40)


def adapted(spec: ModelSpec, lora: LoraConfig, dtype: torch.dtype) -> Decoder:
    decoder = Decoder(spec).to(dtype)
    targets = frozenset(lora.targets)
    add_adapters(decoder, rank=lora.rank, alpha=lora.alpha, targets=targets, dropout=lora.dropout)
    return decoder


def kept_by_forward(decoder: Decoder, device: str, monkeypatch: pytest.MonkeyPatch) -> int:
    known = {parameter.untyped_storage().data_ptr() for parameter in decoder.parameters()}
    kept: list[Tensor] = []
    positions_T = torch.from_numpy(packed_positions(GROUPS))
    attend = PackedGroups(GROUPS, CPU, is_compact=device == "cpu")
    with keeping_in(kept, monkeypatch):
        decoder(torch.zeros(len(positions_T), dtype=torch.int64), positions_T, attend)
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in kept}
    return sum(size for place, size in storages.items() if place not in known)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("mode", ["none", "selective", "full"])
@pytest.mark.parametrize(("device", "dropout"), [("cpu", 0.0), ("cpu", 0.25), ("cuda", 0.0)])
@pytest.mark.parametrize("dtype", ITEMS)
def test_forward_keeps_what_is_planned(
    family: str,
    dtype: torch.dtype,
    device: str,
    dropout: float,
    mode: str,
    targets: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A block exactly; all of them at most, since the first has nothing trained before it and keeps less.

    For a GPU: what its path keeps here, where dropout's mask has another size.
    """
    lora, item, found = LoraConfig(rank=3, dropout=dropout, targets=TARGETS[targets]), ITEMS[dtype], []
    for num_layers in (2, 3):
        spec = replace(SPECS[family], num_layers=num_layers)
        decoder = adapted(spec, lora, dtype)
        decoder.recompute_activations(mode)
        planned = adapters.kept_bytes(spec, STREAM, item, mode, lora, device)
        found.append((kept_by_forward(decoder, device, monkeypatch), planned))
    (two, planned_two), (three, planned_three) = found
    a_block = planned_three - planned_two
    mask = 0 if mode == "full" or device == "cpu" else sizes.mask_bytes(SPECS[family], STREAM, item)
    assert three - two == a_block
    assert planned_three + mask - a_block < three <= planned_three + mask


@pytest.mark.parametrize("bits", [32, 8])
@pytest.mark.parametrize("targets", TARGETS)
def test_trained_parameters_and_states_are_those_planned(family: str, targets: str, bits: int) -> None:
    lora = LoraConfig(rank=3, targets=TARGETS[targets])
    decoder = adapted(SPECS[family], lora, torch.bfloat16)
    trained = {name: p for name, p in decoder.named_parameters() if p.requires_grad}
    planned = adapters.adapter_sizes(SPECS[family], lora)
    assert planned == {name: p.numel() for name, p in trained.items()}
    assert {p.element_size() for p in trained.values()} == {adapters.WIDE}
    states = AdamW(trained.items(), moment_bits=bits).tensors()
    assert sum(x.nbytes for x in states.values()) == sizes.moment_bytes(planned, bits), "moments, and no rest"


def allocated_peak(run: Callable[[], object]) -> int:
    """Most bytes that ``run`` has allocated and not yet given back."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return int(np.cumsum(changes).max())


MIDDLE = replace(SPECS["qwen2"], num_layers=4, width=128, ffn_width=512, num_heads=8, head_size=16, vocab_size=2048)
P, G, PROMPT, COMPLETION = 2, 4, 32, 33


def middle_config(*overrides: str) -> Config:
    counts = (f"training.batch_size={P * G}", f"training.num_questions_per_batch={P}", "training.eval_interval=0")
    lengths = (f"training.max_prompt_len={PROMPT}", f"training.max_gen_len={COMPLETION}")
    return load_config(None, [*counts, *lengths, "training.head_chunk_tokens=64", *overrides])


@pytest.mark.parametrize(
    ("dtype", "dropout", "mode", "targets"),
    [
        ("float32", 0.0, "none", "all"),
        ("float32", 0.25, "full", "all"),
        ("bfloat16", 0.0, "full", "all"),
        ("bfloat16", 0.25, "none", "all"),
        ("bfloat16", 0.0, "selective", "attention"),
        ("float32", 0.0, "full", "up"),
        ("bfloat16", 0.0, "none", "down"),
    ],
)
def test_the_peak_of_an_update_is_below_the_plan_and_not_far(
    dtype: str, dropout: float, mode: str, targets: str
) -> None:
    names = ",".join(TARGETS[targets])
    lora = (f"lora.targets=[{names}]", "lora.rank=8", f"lora.dropout={dropout}")
    config = middle_config(f"model.dtype={dtype}", *lora)
    decoder = adapted(MIDDLE, config.lora, getattr(torch, dtype)).train()
    decoder.recompute_activations(mode)
    optimizer = make_optimizer(decoder, config.training)
    rows = [TrainRow(p, [p] * PROMPT, [2] * COMPLETION, 1.0, [-1.0] * COMPLETION) for p in range(P) for _ in range(G)]
    loss = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)

    def learn() -> dict[str, float]:
        return update(policy_of(decoder), optimizer, rows, loss, 1e-3, config.training)

    learn()  # tables that stay are made
    found = allocated_peak(learn)
    num_tokens = P * PROMPT + P * G * (COMPLETION - 1)
    phase = update_phase(job_of(config, MIDDLE, "cpu"), Choice(mode, False, 1, num_tokens, 64))
    planned = sum(phase.device[name] for name in ("gradients", "kept for backward", "working memory"))
    assert found <= planned <= 1.35 * found


def test_merging_takes_what_is_planned() -> None:
    lora = LoraConfig(rank=8)
    decoder = adapted(MIDDLE, lora, torch.bfloat16)
    merged = MergedState(decoder)
    assert sum(merged[name].nbytes for name in merged) == 2 * MIDDLE.num_parameters
    new = [merged[name] for name in merged if merged[name] is not merged.base[name]]
    assert sum(x.nbytes for x in new) == adapters.merged_bytes(MIDDLE, lora, 2)
    found = allocated_peak(lambda: [None for name in merged if merged[name] is None])
    assert found <= adapters.merging_bytes(MIDDLE, lora, 2) <= 1.3 * found
