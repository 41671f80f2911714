"""Interrupted and resumed equals never interrupted, and looking never changes what is looked at: bit for bit."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import run_config
from safetensors.torch import load_file

from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.observe.files import read_rows
from grpo_zero.runs import OPTIMIZER_FILE, latest_checkpoint
from grpo_zero.train.loop import GRPO
from grpo_zero.train.run import train

pytestmark = pytest.mark.usefixtures("digits_task")


def final_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Weights and optimizer states of the last checkpoint."""
    checkpoint = latest_checkpoint(folder / "checkpoints")
    return load_file(checkpoint / "model" / "model.safetensors") | load_file(checkpoint / OPTIMIZER_FILE)


def untimed(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl without seconds, speeds and memory."""
    timed = ("_s", "tokens_per_s_sample", "tokens_per_s_update", "sample_share", "peak_gib", "peak_host_gib")
    rows = read_rows(folder / "metrics.jsonl")
    return [{key: value for key, value in row.items() if not key.endswith(timed)} for row in rows]


def assert_same_runs(a: Path, b: Path) -> None:
    found, expected = final_tensors(a), final_tensors(b)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.fixture
def unbroken(model_folder: Path, tmp_path: Path) -> Path:
    folder = train(run_config(model_folder, tmp_path, "training.run_name=unbroken"))
    learned = [row for row in untimed(folder) if row.get("grad_norm", 0) > 0]
    assert len(learned) == 4, "every step moves the weights, or the comparison shows nothing"
    return folder


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_interrupted_and_resumed_equals_unbroken(
    unbroken: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    """K01, K02: Ctrl-C in a step, then --resume; weights, optimizer, metrics and samples."""
    original = GRPO.step

    def interrupted(self: GRPO, step: int, *rest: Any) -> Any:
        if step == stop_after:
            signal.raise_signal(signal.SIGINT)
        return original(self, step, *rest)

    monkeypatch.setattr(GRPO, "step", interrupted)
    folder = train(run_config(model_folder, tmp_path, "training.run_name=broken"))
    assert latest_checkpoint(folder / "checkpoints").name == f"step_{stop_after:06d}"
    monkeypatch.setattr(GRPO, "step", original)
    train(load_config(str(folder / "config.yaml")), folder)
    assert_same_runs(folder, unbroken)
    assert untimed(folder) == untimed(unbroken)
    assert read_rows(folder / "samples.jsonl") == read_rows(unbroken / "samples.jsonl")


def test_8_bit_moments_resume_exactly_and_only_as_such(model_folder: Path, tmp_path: Path) -> None:
    bits = "training.moment_bits=8"
    whole = train(run_config(model_folder, tmp_path, "training.run_name=whole", bits))
    first = train(run_config(model_folder, tmp_path, "training.run_name=halves", bits, "training.max_steps=2"))
    other = load_config(str(first / "config.yaml"), ["training.max_steps=4", "training.moment_bits=32"])
    with pytest.raises(UserError, match=r"training\.moment_bits 8 -> 32: leave it as before"):
        train(other, first)
    train(load_config(str(first / "config.yaml"), ["training.max_steps=4"]), first)
    assert_same_runs(first, whole)


def test_crashed_after_a_checkpoint_and_resumed_equals_unbroken(
    unbroken: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K06: the records of the steps that were lost are dropped, not doubled."""
    original = GRPO.step

    def crashing(self: GRPO, step: int, *rest: Any) -> Any:
        if step == 4:
            raise RuntimeError("power cut")
        return original(self, step, *rest)

    monkeypatch.setattr(GRPO, "step", crashing)
    config = run_config(model_folder, tmp_path, "training.run_name=broken", "training.ckpt_save_interval=2")
    with pytest.raises(RuntimeError, match="power cut"):
        train(config)
    folder = tmp_path / "broken"
    assert untimed(folder)[-1]["step"] == 3
    monkeypatch.setattr(GRPO, "step", original)
    train(load_config(str(folder / "config.yaml")), folder)
    assert_same_runs(folder, unbroken)
    assert untimed(folder) == untimed(unbroken)
    assert read_rows(folder / "samples.jsonl") == read_rows(unbroken / "samples.jsonl")


@pytest.mark.parametrize(
    "change",
    [
        ["training.eval_interval=0"],
        ["training.eval_interval=1", "evaluation.samples_per_problem=3", "evaluation.greedy=false"],
        ["training.num_slots=3"],
        ["training.ckpt_save_interval=1"],
        ["training.memory_efficient_adamw=true"],
        ["training.recompute_activations=true"],
    ],
    ids=lambda change: change[0],
)
def test_what_does_not_belong_to_the_algorithm_changes_nothing(
    unbroken: Path, model_folder: Path, tmp_path: Path, change: list[str]
) -> None:
    folder = train(run_config(model_folder, tmp_path, "training.run_name=other", *change))
    if change == ["training.num_slots=3"]:  # another batch shape in sampling: equal tokens, log-probs within rounding
        texts = [[row["response"] for row in read_rows(run / "samples.jsonl")] for run in (folder, unbroken)]
        assert texts[0] == texts[1]
    assert_same_runs(folder, unbroken)


def test_another_seed_is_another_run(unbroken: Path, model_folder: Path, tmp_path: Path) -> None:
    folder = train(run_config(model_folder, tmp_path, "training.run_name=other", "training.random_seed=1"))
    name = "model.embed_tokens.weight"
    assert not torch.equal(final_tensors(folder)[name], final_tensors(unbroken)[name])


def test_a_planned_run_resumes_exactly_and_is_not_planned_anew(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was chosen stands in config.yaml; another machine's memory does not matter any more."""
    memory = "training.memory=2"
    whole = train(run_config(model_folder, tmp_path, "training.run_name=whole", memory))
    first = train(run_config(model_folder, tmp_path, "training.run_name=halves", memory, "training.max_steps=2"))
    kept = load_config(str(first / "config.yaml"), ["training.max_steps=4"])
    assert kept.training.memory is None
    assert kept.training.recompute_activations == "none"
    assert kept.training.num_slots is not None
    with pytest.raises(UserError, match="keeps the sizes it started with"):
        train(load_config(str(first / "config.yaml"), [memory]), first)
    capsys.readouterr()
    train(kept, first)
    assert_same_runs(first, whole)
    summary = json.loads((first / "summary.json").read_text())
    assert 1 < summary["planned_gib"] < 2
    assert f"memory: planned {summary['planned_gib']:.2f} GiB, measured peak" in capsys.readouterr().out
