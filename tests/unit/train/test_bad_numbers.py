"""A run that meets numbers which are not finite: skipped, counted, shown, and stopped with the batch in its folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import run_config, run_settings

from grpo_zero.cli import main
from grpo_zero.errors import UserError
from grpo_zero.observe.files import read_rows
from grpo_zero.runs import checkpoints
from grpo_zero.train import update as update_module
from grpo_zero.train.bad_batch import broken_weights
from grpo_zero.train.run import Run, train
from grpo_zero.train.sft import warm_start

pytestmark = pytest.mark.usefixtures("digits_task")


def break_updates(monkeypatch: pytest.MonkeyPatch, numbers: Collection[int]) -> None:
    """The gradients of these updates, counted from 1, are NaN; everything before them is right."""
    real, count = update_module.backward, [0]

    def broken(policy: Any, *rest: Any) -> Any:
        facts = real(policy, *rest)
        count[0] += 1
        if count[0] in numbers:
            policy.decoder.norm.weight.grad[0] = math.nan
        return facts

    monkeypatch.setattr(update_module, "backward", broken)


def train_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(folder / "metrics.jsonl") if row["kind"] == "train"]


def test_a_bad_step_in_between_is_counted_and_the_run_goes_on(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    break_updates(monkeypatch, {2, 4})
    folder = train(run_config(model_folder, tmp_path, "training.run_name=some", "training.max_skipped_steps=2"))
    assert [row["skipped_updates"] for row in train_rows(folder)] == [0, 1, 0, 1]
    assert [row["num_updates"] for row in train_rows(folder)] == [1, 0, 1, 0]
    assert [row["grad_norm"] is None for row in train_rows(folder)] == [False, True, False, True]
    assert json.loads((folder / "summary.json").read_text())["skipped_updates"] == 2
    out = capsys.readouterr().out
    assert re.search(r"step 2/4 .* check: .*skipped_updates", out)
    assert "note: step 2 skipped: loss or gradient is not finite" in out
    assert "1 in a row; the run stops at 2" in out
    assert not list(folder.glob("bad_batch*"))
    assert [path.name for path in checkpoints(folder / "checkpoints")] == ["step_000004"]


def test_too_many_in_a_row_stop_the_run_with_the_batch_saved(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    break_updates(monkeypatch, range(3, 100))
    settings = ("training.run_name=bad", "training.max_steps=9", "training.ckpt_save_interval=2")
    assert main(["train", *run_settings(model_folder, tmp_path, *settings)]) == 2
    folder = tmp_path / "bad"
    path = folder / "bad_batch_step_000005.json"
    error = capsys.readouterr().err
    assert error.startswith("error: Loss or gradient was not finite in 3 steps in a row, the last of them step 5,")
    assert f"The batch is in {path}." in error
    assert "all log-probs are finite, so the backward overflows" in error
    assert len(error.splitlines()) == 1
    assert [row["skipped_updates"] for row in train_rows(folder)] == [0, 0, 1, 1, 1]
    assert [p.name for p in checkpoints(folder / "checkpoints")] == ["step_000002", "step_000004"], "of good weights"

    batch = json.loads(path.read_text(encoding="utf-8"))
    assert (batch["step"], batch["grad_norm"], batch["weights_not_finite"]) == (5, "nan", [])
    assert math.isfinite(float(batch["loss"]))
    samples = [row for row in read_rows(folder / "samples.jsonl") if row["kind"] == "train" and row["step"] == 5]
    assert len(batch["rows"]) == len(samples) == 8
    assert [row["group"] for row in batch["rows"]] == [0] * 4 + [1] * 4
    for row, sample in zip(batch["rows"], samples, strict=True):
        assert row["prompt"] == sample["prompt"]
        assert row["completion"].startswith(sample["response"])
        assert (row["reward"], row["advantage"]) == (sample["reward"], sample["advantage"])
        assert len(row["completion_ids"]) == len(row["sampled_logprobs"]) == len(row["trainer_logprobs"])
        assert row["trainer_logprobs"] == pytest.approx(row["sampled_logprobs"], abs=1e-4)
        assert row["tokens_not_finite"] == []


def test_a_stopped_run_goes_on_and_may_be_told_never_to_stop(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_updates(monkeypatch, range(2, 100))
    settings = ("training.run_name=bad", "training.max_steps=6", "training.ckpt_save_interval=1")
    with pytest.raises(UserError, match="in 3 steps in a row"):
        train(run_config(model_folder, tmp_path, *settings))
    assert main(["train", "--resume", str(tmp_path / "bad"), "training.max_skipped_steps=null"]) == 0
    assert [row["skipped_updates"] for row in train_rows(tmp_path / "bad")] == [0, 1, 1, 1, 1, 1]


def test_tokens_whose_log_probs_are_broken_are_named(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training forward overflows where sampling did not: at the second token."""
    head, chunked = update_module.head_backward, update_module.chunked_logprobs

    def spoilt(hidden_CE: torch.Tensor) -> torch.Tensor:
        hidden_CE = hidden_CE.clone()
        hidden_CE[1] = math.inf
        return hidden_CE

    monkeypatch.setattr(update_module, "head_backward", lambda hidden, *rest: head(spoilt(hidden), *rest))
    monkeypatch.setattr(update_module, "chunked_logprobs", lambda hidden, *rest: chunked(spoilt(hidden), *rest))
    with pytest.raises(UserError, match=r"the log-probs of 1 of \d+ tokens are not finite, so the forward overflows"):
        train(run_config(model_folder, tmp_path, "training.run_name=bad"))
    batch = json.loads((tmp_path / "bad" / "bad_batch_step_000003.json").read_text(encoding="utf-8"))
    assert batch["loss"] == "nan"
    assert [row["tokens_not_finite"] for row in batch["rows"]] == [[1], *[[]] * 7]
    assert batch["rows"][0]["trainer_logprobs"][1] is None


def test_broken_weights_end_in_a_sentence_and_never_in_a_checkpoint(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Run.step

    def spoil(after: bool) -> Callable[..., Any]:
        def step(self: Run, number: int, *rest: Any) -> Any:
            def break_weights() -> None:
                with torch.no_grad():
                    self.grpo.policy.decoder.layers[1].mlp.down.weight[0, 0] = math.nan

            if number == 2 and not after:
                break_weights()
            done = original(self, number, *rest)
            if number == 2 and after:
                break_weights()
            return done

        return step

    for after, message in ((False, "Sampling met a log-probability of nan"), (True, "After step 2 1 of the weights'")):
        monkeypatch.setattr(Run, "step", spoil(after))
        settings = ("training.ckpt_save_interval=1", "training.eval_interval=0", f"training.run_name=after_{after}")
        with pytest.raises(UserError, match=message):
            train(run_config(model_folder, tmp_path, *settings))
        found = checkpoints(tmp_path / f"after_{after}" / "checkpoints")
        assert [path.name for path in found] == ["step_000001"]


def test_broken_weights_are_found_wherever_they_are() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for fault in (math.nan, math.inf, -math.inf):
            model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).to(dtype)
            assert broken_weights(model) == []
            with torch.no_grad():
                model[1].weight[0, 1] = fault
            assert broken_weights(model) == ["1.weight"]


def test_a_warm_start_skips_and_stops_alike(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    break_updates(monkeypatch, {2, 5, 6})
    config = run_config(
        model_folder,
        tmp_path,
        "data.task=countdown",
        "training.max_gen_len=40",
        "training.run_name=warm",
        "training.max_skipped_steps=2",
        f"sft.output={tmp_path}/model",
        "sft.batch_size=4",
        "sft.max_steps=12",
    )
    with pytest.raises(UserError, match=r"in 2 steps in a row, the last of them step 6"):
        warm_start(config)
    assert "note: step 2 skipped" in capsys.readouterr().out
    rows = [row for row in read_rows(tmp_path / "warm" / "metrics.jsonl") if row["skipped_updates"]]
    assert [row["step"] for row in rows] == [2, 5, 6], "written whatever sft.log_interval"
    batch = json.loads((tmp_path / "warm" / "bad_batch_step_000006.json").read_text(encoding="utf-8"))
    assert len(batch["rows"]) == 4
    assert [(row["reward"], row["sampled_logprobs"]) for row in batch["rows"]] == [(None, None)] * 4
    assert "<think>" in batch["rows"][0]["prompt"] + batch["rows"][0]["completion"]
    assert not (tmp_path / "model").exists()
