"""A run with LoRA: the base never moves, sampler and trainer agree after every update, and it resumes exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from helpers.runs import run_config
from safetensors.torch import load_file

from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.model.attention import DenseCausal
from grpo_zero.train.adapters import adapt
from grpo_zero.train.kl_reference import load_kl_reference
from grpo_zero.train.policy import load_policy
from grpo_zero.train.run import train

pytestmark = pytest.mark.usefixtures("digits_task")
LORA = ("lora.rank=4", "lora.alpha=8", "training.learning_rate=0.01")


def records(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


def last_checkpoint(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("step_*"))


def tensors(folder: Path, kind: str, file: str) -> dict[str, torch.Tensor]:
    return load_file(last_checkpoint(folder) / kind / file)


def test_a_run_moves_the_adapter_alone_and_sampler_and_trainer_agree(model_folder: Path, tmp_path: Path) -> None:
    """P02, P06, P08."""
    config = run_config(model_folder, tmp_path, "training.run_name=lora", *LORA)
    folder = train(config)
    assert all(record["logprob_gap"] < 1e-5 for record in records(folder)), "also after updates"
    adapter = tensors(folder, "adapter", "adapter_model.safetensors")
    assert all(tensor.abs().sum() > 0 for name, tensor in adapter.items() if "lora_B" in name)
    base = load_policy(config.model, init_seed=config.training.random_seed).decoder
    merged = tensors(folder, "model", "model.safetensors")
    untouched = [name for name in merged if "norm" in name or "embed" in name or "bias" in name]
    ours = {"model.embed_tokens.weight": base.embedding.weight, "model.norm.weight": base.norm.weight}
    assert set(ours) <= set(untouched)
    for name, weight in ours.items():
        assert torch.equal(merged[name], weight), "bit for bit"
    assert not torch.equal(merged["model.layers.0.self_attn.o_proj.weight"], base.layers[0].attention.output.weight)
    optimizer = load_file(last_checkpoint(folder) / "optimizer.safetensors")
    assert all(".adapter." in name for name in optimizer)


@pytest.mark.parametrize(
    "more", [(), ("lora.dropout=0.2",), ("algorithm.kl_weight=0.1",)], ids=["plain", "dropout", "kl"]
)
def test_it_resumes_exactly(model_folder: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    whole = train(run_config(model_folder, tmp_path, "training.run_name=whole", *LORA, *more))
    halves = train(run_config(model_folder, tmp_path, "training.run_name=halves", "training.max_steps=2", *LORA, *more))
    train(load_config(str(halves / "config.yaml"), ["training.max_steps=4"]), halves)
    first, second = (tensors(folder, "adapter", "adapter_model.safetensors") for folder in (whole, halves))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    same = ("reward", "loss", "grad_norm", "entropy")
    assert [[r[k] for k in same] for r in records(whole)] == [[r[k] for k in same] for r in records(halves)]


def test_a_run_from_an_adapter_starts_there_and_is_held_to_it(model_folder: Path, tmp_path: Path) -> None:
    """P01: KL to the start is 0 at step 1."""
    first = train(run_config(model_folder, tmp_path, "training.run_name=first", *LORA))
    adapter = f"lora.adapter={last_checkpoint(first) / 'adapter'}"
    settings = (*LORA, adapter, "algorithm.kl_weight=0.1", "training.run_name=second")
    second = train(run_config(model_folder, tmp_path, *settings))
    kl = [record["kl_reference"] for record in records(second)]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert kl[-1] > kl[0]
    with pytest.raises(UserError, match=r"lora.rank is 2, but the adapter"):
        train(run_config(model_folder, tmp_path, "lora.rank=2", "lora.alpha=8", adapter, "training.run_name=third"))


def test_the_start_is_the_frozen_weights_themselves(model_folder: Path, tmp_path: Path) -> None:
    config = run_config(model_folder, tmp_path, *LORA, "algorithm.kl_weight=0.1")
    policy = load_policy(config.model, init_seed=0)
    adapt(policy, config)
    base = {name: p for name, p in policy.decoder.named_parameters() if ".adapter." not in name}
    reference = load_kl_reference(policy, config).decoder
    theirs = dict(reference.named_parameters())
    assert {name: p.data_ptr() for name, p in theirs.items()} == {name: p.data_ptr() for name, p in base.items()}
    trained = [p for p in policy.decoder.parameters() if p.requires_grad]
    assert len(trained) == sum(".adapter." in name for name, _ in policy.decoder.named_parameters())
    tokens_T = torch.arange(5)
    before = reference(tokens_T, tokens_T, DenseCausal())
    for parameter in trained:
        torch.nn.init.normal_(parameter)
    assert torch.equal(reference(tokens_T, tokens_T, DenseCausal()), before)
    assert not torch.equal(policy.decoder(tokens_T, tokens_T, DenseCausal()), before)


def test_a_planned_run_tells_what_was_planned_and_measured(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(run_config(model_folder, tmp_path, "training.run_name=planned", *LORA, "training.memory=2"))
    summary = json.loads((folder / "summary.json").read_text())
    printed = capsys.readouterr().out
    assert "plan: " in printed
    assert f"memory: planned {summary['planned_gib']:.2f} GiB, measured peak" in printed
    assert load_config(str(folder / "config.yaml")).training.memory is None


def test_settings_that_make_no_sense(model_folder: Path, tmp_path: Path) -> None:
    for settings, words in (
        (("lora.rank=2", "lora.targets=[lm_head]"), "stay frozen"),
        (("lora.rank=2", "lora.targets=[q_prj]"), "q_proj"),
        (("lora.adapter=somewhere",), "lora.rank is 0"),
    ):
        with pytest.raises(UserError, match=words):
            run_config(model_folder, tmp_path, *settings)
