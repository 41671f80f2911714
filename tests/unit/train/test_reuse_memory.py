"""``training.reuse_memory``: the same numbers in the same places."""

from __future__ import annotations

import pytest
import torch
from helpers.sampling import PROMPTS, STOP_IDS
from helpers.tiny import policy_of, random_rows, tiny_decoder

from grpo_zero.allocator import SMALL_BYTES
from grpo_zero.config import Config, TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout import engine as engine_module
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train import evaluate as evaluate_module
from grpo_zero.train import optimizer as optimizer_module
from grpo_zero.train import policy as policy_module
from grpo_zero.train import update as update_module
from grpo_zero.train.optimizer import AdamW, make_optimizer
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update


@pytest.fixture(autouse=True)
def every_gradient_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_module, "LARGEST_KEPT_BYTES", 0)


def learn(decoder: Decoder, optimizer: AdamW, training: TrainingConfig, seed: int) -> dict[str, float]:
    rows = weigh(random_rows(seed, [3, 2]), "token", 10)
    loss = GRPOLoss(algorithm=Config().algorithm, is_on_policy=True)
    return update(policy_of(decoder), optimizer, rows, loss, 1e-2, training)


@pytest.mark.parametrize("micro_batch_tokens", [16, 4096], ids=["several micro-batches", "one"])
@pytest.mark.parametrize("family", ["qwen2", "llama"], ids=["tied", "untied"])
def test_updates_are_the_same_bit_for_bit(family: str, micro_batch_tokens: int) -> None:
    decoders = [tiny_decoder(family) for _ in range(2)]
    for reuse_memory, decoder in zip((True, False), decoders, strict=True):
        training = TrainingConfig(reuse_memory=reuse_memory, micro_batch_tokens=micro_batch_tokens)
        optimizer = make_optimizer(decoder, training)
        for seed in range(3):
            learn(decoder, optimizer, training, seed)
    for (name, ours), theirs in zip(decoders[0].named_parameters(), decoders[1].parameters(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("reuse_memory", [True, False])
def test_gradients_stand_where_the_last_ones_stood(reuse_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder("llama")
    training = TrainingConfig(reuse_memory=reuse_memory)
    optimizer = make_optimizer(decoder, training)
    kept = {name: p for name, p in decoder.named_parameters() if p.dim() == 2}
    places: list[dict[str, int]] = []
    step = optimizer.step

    def watched(learning_rate: float) -> None:
        places.append({name: p.grad.data_ptr() for name, p in kept.items() if p.grad is not None})
        step(learning_rate)

    monkeypatch.setattr(optimizer, "step", watched)
    blockers = []
    for seed in range(2):
        learn(decoder, optimizer, training, seed)
        assert all(p.grad is None for p in decoder.parameters())
        blockers += [torch.empty_like(p) for p in kept.values() for _ in range(4)]  # takes what was freed
    assert places[0].keys() == kept.keys()
    assert (places[0] == places[1]) == reuse_memory


def test_small_gradients_are_left_to_malloc(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder("llama")
    limit = decoder.embedding.weight.nbytes
    monkeypatch.setattr(optimizer_module, "LARGEST_KEPT_BYTES", limit)
    training = TrainingConfig()
    learn(decoder, make_optimizer(decoder, training), training, 0)
    assert {p.nbytes > limit for p in decoder.parameters() if hasattr(p, "spare_gradient")} == {True}


def test_states_on_the_host_keep_nothing() -> None:
    decoder = tiny_decoder("qwen2")
    training = TrainingConfig(memory_efficient_adamw=True)
    learn(decoder, make_optimizer(decoder, training), training, 0)
    assert not any(hasattr(p, "spare_gradient") for p in decoder.parameters())


@pytest.mark.parametrize("reuse_memory", [True, False])
def test_only_without_it_free_memory_goes_back_before_sampling_micro_batches_and_heads(
    reuse_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(engine_module, "give_back_freed_memory", lambda: given_back.append("sampling"))
    monkeypatch.setattr(update_module, "give_back_freed_memory", lambda: given_back.append("update"))
    decoder, training = tiny_decoder("qwen2"), TrainingConfig(reuse_memory=reuse_memory, micro_batch_size=3)
    Engine(decoder, STOP_IDS, None, reuses_memory=reuse_memory).generate(PROMPTS, 1, SamplingParams(3))
    learn(decoder, make_optimizer(decoder, training), training, 0)
    assert given_back == ([] if reuse_memory else ["sampling", *["update"] * 4])


@pytest.mark.parametrize("reuse_memory", [True, False])
def test_only_without_it_the_allocator_keeps_little(reuse_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(policy_module, "keep_freed_memory", told.append)
    policy_module.set_reuse(TrainingConfig(reuse_memory=reuse_memory))
    assert told == ([] if reuse_memory else [SMALL_BYTES])


def test_an_evaluation_begins_and_ends_with_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its many answers need blocks of other sizes than a step's."""
    done: list[str] = []

    class FakeEngine:
        def generate(self, *_: object, **__: object) -> list[object]:
            done.append("sample")
            return []

    monkeypatch.setattr(evaluate_module, "give_back_freed_memory", lambda: done.append("give back"))
    answers = evaluate_module.answer_all(policy_of(tiny_decoder("qwen2")), FakeEngine(), None, [], Config())  # type: ignore[arg-type]
    assert answers == ([], [])
    assert done == ["give back", "sample", "give back"] * 2
