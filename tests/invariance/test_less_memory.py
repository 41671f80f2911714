"""M02: where memory runs out, work done again with less is what a run that began with less does, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import run_config
from helpers.sampling import MASK_V, MODES, PROMPTS, STOP_IDS
from helpers.tiny import policy_of, random_rows, tiny_decoder
from safetensors.torch import load_file
from torch import Tensor

from grpo_zero.config import TrainingConfig, load_config
from grpo_zero.model.decoder import Decoder
from grpo_zero.observe.files import read_rows
from grpo_zero.out_of_memory import OutOfMemory
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.rollout import dynamic as dynamic_module
from grpo_zero.rollout import static as static_module
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.naive import naive_generate
from grpo_zero.rollout.request import Request
from grpo_zero.runs import latest_checkpoint
from grpo_zero.train import update as update_module
from grpo_zero.train.budget import Budget
from grpo_zero.train.offload import HostGradients
from grpo_zero.train.optimizer import AdamW, HostAdamW
from grpo_zero.train.rows import weigh
from grpo_zero.train.run import train
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

LOSS = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
OPTIMIZERS: dict[str, Callable[[Decoder], AdamW]] = {
    "plain": lambda decoder: AdamW(decoder.named_parameters(), weight_decay=0.1),
    "8-bit moments": lambda decoder: AdamW(decoder.named_parameters(), weight_decay=0.1, moment_bits=8),
    "offload": lambda decoder: HostAdamW(decoder.named_parameters(), weight_decay=0.1),
}


def run_out() -> None:
    """The real error of PyTorch's CPU allocator."""
    torch.empty(2**60, dtype=torch.uint8)


def no_room_for(monkeypatch: pytest.MonkeyPatch, most_tokens: int, after: str = "backward") -> None:
    """Memory that a micro-batch of more tokens does not fit into: it fails when its gradients are there already, or some."""
    name = {"backward": "backward", "forward": "pack"}[after]
    real = getattr(update_module, name)

    def limited(*arguments: Any) -> Any:
        done = real(*arguments)
        batch = done if after == "forward" else arguments[1]
        if len(batch.tokens_T) > most_tokens:
            run_out()
        return done

    monkeypatch.setattr(update_module, name, limited)


def learn(decoder: Decoder, optimizer: AdamW, budget: Budget, seed: int) -> dict[str, float]:
    rows = weigh(random_rows(seed, [3, 4, 2]), "token", 9)

    def work(training: TrainingConfig) -> dict[str, float]:
        return update(policy_of(decoder), optimizer, rows, LOSS, 1e-3, training)

    return budget.attempt(work, rows, "the update", optimizer)


def state(decoder: Decoder, optimizer: AdamW) -> dict[str, Tensor]:
    tensors = dict(decoder.named_parameters()) | optimizer.tensors()
    return {name: x.detach().clone() for name, x in tensors.items()}


@pytest.mark.parametrize("after", ["backward", "forward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_same_update_is_done_again(
    make: Callable[[Decoder], AdamW], dtype: torch.dtype, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, twin = (tiny_decoder("qwen2").to(dtype) for _ in range(2))
    optimizer, other = make(decoder), make(twin)
    budget, halved = Budget(TrainingConfig(micro_batch_tokens=64)), Budget(TrainingConfig(micro_batch_tokens=16))
    expected = [learn(twin, other, halved, seed) for seed in range(3)]
    no_room_for(monkeypatch, 16, after)
    found = [learn(decoder, optimizer, budget, seed) for seed in range(3)]
    assert found == expected
    assert optimizer.num_steps == 3
    assert (budget.training.micro_batch_tokens, budget.num_shortages) == (16, 2), "64 -> 32 -> 16, and no more after it"
    expected_state = state(twin, other)
    for name, x in state(decoder, optimizer).items():
        assert torch.equal(x, expected_state[name]), name


@pytest.mark.parametrize("place", [0, 3, 9])
def test_a_shortage_on_the_hosts_thread_leaves_nothing_behind(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever gradient meets it: later ones meet it too, and staging buffers were on their way."""
    decoder, twin = tiny_decoder("llama"), tiny_decoder("llama")
    optimizer, other = HostAdamW(decoder.named_parameters()), HostAdamW(twin.named_parameters())
    budget, add, count = Budget(TrainingConfig(micro_batch_tokens=64)), HostGradients._add, iter(range(10**6))

    def fail(self: HostGradients, name: str, grad: Tensor, ready: None) -> None:
        if budget.training.micro_batch_tokens == 64 and next(count) >= place:
            next(self.staging.downloads(iter([grad[:1], grad[:1]]), ready))
            run_out()
        add(self, name, grad, ready)

    monkeypatch.setattr(HostGradients, "_add", fail)
    found = [learn(decoder, optimizer, budget, seed) for seed in range(2)]
    assert budget.num_shortages == 1
    monkeypatch.undo()
    assert found == [learn(twin, other, budget, seed) for seed in range(2)]
    for name, parameter in twin.named_parameters():
        assert torch.equal(decoder.get_parameter(name), parameter), name


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_step_half_done_is_not_done_again(make: Callable[[Decoder], AdamW], monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder("qwen2")
    optimizer, budget, calls = make(decoder), Budget(TrainingConfig(micro_batch_tokens=64)), []
    step_part = AdamW._step_part

    def fail(self: AdamW, *arguments: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 4:
            run_out()
        return step_part(self, *arguments)

    monkeypatch.setattr(AdamW, "_step_part", fail)
    with pytest.raises(OutOfMemory, match="some weights have been stepped and others not") as caught:
        learn(decoder, optimizer, budget, 0)
    assert caught.value.stage == "the optimizer's step"
    assert budget.num_shortages == 0


def test_below_the_longest_row_it_gives_up_with_the_weights_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder("qwen2")
    optimizer, budget = HostAdamW(decoder.named_parameters()), Budget(TrainingConfig(micro_batch_tokens=64))
    before = state(decoder, optimizer)
    no_room_for(monkeypatch, 1)
    with pytest.raises(OutOfMemory, match="can't allocate memory"):
        learn(decoder, optimizer, budget, 0)
    longest = max(len(row.prompt_ids) + len(row.completion_ids) - 1 for row in random_rows(0, [3, 4, 2]))
    assert budget.training.micro_batch_tokens == longest
    assert optimizer.num_steps == 0
    for name, x in state(decoder, optimizer).items():
        assert torch.equal(x, before[name]), name
    assert all(parameter.grad is None for parameter in decoder.parameters())


def test_a_budget_that_cuts_alike_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """16384 tokens where the update has 60: the next try has to differ, or it fails alike."""
    decoder, tried, real = tiny_decoder("qwen2"), [], update_module.split_micro_batches

    def watched(rows: Any, tokens: int, size: int | None) -> Any:
        parts = list(real(rows, tokens, size))
        tried.append([len(part) for part in parts])
        return parts

    monkeypatch.setattr(update_module, "split_micro_batches", watched)
    no_room_for(monkeypatch, 16)
    learn(decoder, AdamW(decoder.named_parameters()), Budget(TrainingConfig()), 0)
    assert len(tried) > 1
    assert all(first != second for first, second in pairwise(tried))


@pytest.mark.parametrize(
    "params", [MODES["sampled"], MODES["greedy"], MODES["cold"]], ids=["sampled", "greedy", "cold"]
)
@pytest.mark.parametrize("decode", ["dynamic", "static"])
@pytest.mark.parametrize("num_slots", [12, None])
def test_sampling_with_fewer_slots_says_the_same(
    num_slots: int | None, decode: str, params: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where some answers had ended: the whole generation is done again."""
    decoder = tiny_decoder("qwen2")
    expected = naive_generate(decoder, PROMPTS, 3, params, stop_ids=STOP_IDS, has_token_V=MASK_V)
    engine = Engine(decoder, STOP_IDS, MASK_V, num_slots, decode=decode)
    module = {"dynamic": dynamic_module, "static": static_module}[decode]
    prefill, seen = module.prefill, []
    name = {"dynamic": "make_cache", "static": "Grid"}[decode]
    real = getattr(module, name)

    def limited(*arguments: Any) -> Any:
        seen.append(arguments[1].num_slots if decode == "dynamic" else arguments[2] * arguments[3])
        return real(*arguments)

    def run_out_late(*arguments: Any) -> Any:
        if seen[-1] > 3:
            run_out()
        return prefill(*arguments)

    monkeypatch.setattr(module, name, limited)
    monkeypatch.setattr(module, "prefill", run_out_late)
    found = engine.generate(PROMPTS, 3, params)
    assert [[row.token_ids for row in group] for group in found] == [[r.token_ids for r in g] for g in expected]
    assert (engine.num_slots, engine.num_shortages) == (3, 2), "12 -> 6 -> 3"
    assert not decoder.training or decoder.layers[0].training
    engine.generate(PROMPTS, 3, params)
    assert engine.num_shortages == 2, "kept for the next time"


def test_with_one_slot_sampling_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder("qwen2")
    monkeypatch.setattr(dynamic_module, "prefill", lambda *_: run_out())
    engine = Engine(decoder, STOP_IDS, MASK_V, 5)
    with pytest.raises(OutOfMemory, match="in sampling") as caught:
        engine.generate(PROMPTS, 3, MODES["sampled"])
    assert (caught.value.stage, engine.num_slots) == ("sampling", 1)
    assert decoder.training


@pytest.mark.usefixtures("digits_task")
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("training.memory_efficient_adamw=true",),
        ("lora.rank=4", "lora.dropout=0.2"),
        ("algorithm.kl_weight=0.1", "training.updates_per_rollout=2", "algorithm.old_logprobs=trainer"),
    ],
    ids=["plain", "offload", "dropout", "reference and old log-probs"],
)
def test_a_whole_run_equals_one_that_was_given_less(
    more: tuple[str, ...], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """M02: groups, normaliser, dropout; log-probs of the reference and old ones run out of the same memory."""
    less = ("training.micro_batch_tokens=64", "training.num_slots=3", "training.run_name=less")
    expected = train(run_config(model_folder, tmp_path, *more, *less))
    capsys.readouterr()
    no_room_for(monkeypatch, 64, "forward")
    real = dynamic_module.make_cache

    def few_slots(decoder: Decoder, request: Request) -> Any:
        if request.num_slots > 3:
            run_out()
        return real(decoder, request)

    monkeypatch.setattr(dynamic_module, "make_cache", few_slots)
    found = train(run_config(model_folder, tmp_path, *more, "training.run_name=found"))
    for file in ("model/model.safetensors", "optimizer.safetensors"):
        ours, theirs = (load_file(latest_checkpoint(run / "checkpoints") / file) for run in (found, expected))
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    out = capsys.readouterr().out
    for lowered in ("training.num_slots is now 3 for", "training.micro_batch_tokens is now 64 for"):
        assert out.count(lowered) == 1, "one note"
    kept = load_config(str(found / "config.yaml"))
    assert kept == replace(
        load_config(str(expected / "config.yaml")), training=replace(kept.training, run_name="found")
    ), "a resumed run has the sizes it went on with"
    counts = [row.get("out_of_memory", 0) for row in read_rows(found / "metrics.jsonl") if row["kind"] == "train"]
    assert counts[0] >= 1
    assert not any(counts[1:])
