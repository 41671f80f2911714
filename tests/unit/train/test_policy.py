"""From a model's name to a policy: device, precision, context, tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.runs import make_model_folder, run_config

from grpo_zero.config import ModelConfig
from grpo_zero.errors import UserError
from grpo_zero.train.policy import load_policy, resolve_device, resolve_dtype
from grpo_zero.types import Completion


@pytest.fixture
def config(model_folder: Path) -> ModelConfig:
    return run_config(model_folder, Path("unused"), "data.task=countdown").model


def test_a_gpu_that_is_not_there_is_refused_with_what_works_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("cuda", "cuda:1", "mps"):
        with pytest.raises(UserError, match=f"'{name}'.*`uv run grpo-zero train`"):
            resolve_device(name)
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")


def test_auto_takes_the_best_device_and_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto").type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto").type == "cuda"
    assert resolve_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert resolve_dtype("auto", torch.device("cpu")) == torch.float32
    assert resolve_dtype("bfloat16", torch.device("cpu")) == torch.bfloat16


def test_more_tokens_than_the_context_are_refused_with_the_numbers(config: ModelConfig) -> None:
    """T06."""
    load_policy(config, init_seed=0, max_tokens=512)
    with pytest.raises(UserError, match=r"513 tokens.*512.*training\.max_gen_len"):
        load_policy(config, init_seed=0, max_tokens=513)


def test_random_weights_are_the_seeds(config: ModelConfig) -> None:
    weights = [load_policy(config, init_seed=seed).decoder.embedding.weight for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_ids_without_a_token_are_known(config: ModelConfig, tmp_path: Path) -> None:
    assert load_policy(config, init_seed=0).has_token_V is None
    wide = make_model_folder(tmp_path / "wide", vocab_size=300)
    policy = load_policy(replace(config, pretrained_model_path=str(wide)), init_seed=0)
    size = policy.tokenizer.vocab_size
    assert policy.has_token_V.tolist() == [True] * size + [False] * (300 - size)


def test_texts_come_without_the_stop_token(config: ModelConfig) -> None:
    policy = load_policy(config, init_seed=0)
    ids = policy.tokenizer.encode("1 + 2")
    stop = policy.tokenizer.end_of_turn_id
    completions = [Completion(0, 0, [*ids, stop], [], "stop", 0), Completion(0, 1, ids, [], "length", 0)]
    assert [policy.text(completion) for completion in completions] == ["1 + 2", "1 + 2"]
