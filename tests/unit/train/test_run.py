"""A whole run on a toy scale: what it writes, when it stops, how it is interrupted."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import run_config, run_settings

from grpo_zero.cli import main
from grpo_zero.config import load_config
from grpo_zero.observe.files import read_rows
from grpo_zero.runs import latest_checkpoint
from grpo_zero.train.loop import GRPO
from grpo_zero.train.run import Run, train

pytestmark = pytest.mark.usefixtures("digits_task")


def steps_of(folder: Path, kind: str) -> list[int]:
    return [row["step"] for row in read_rows(folder / "metrics.jsonl") if row["kind"] == kind]


def on_step(monkeypatch: pytest.MonkeyPatch, step: int, action) -> None:
    """Do ``action`` before that step of the loop."""
    original = GRPO.step

    def wrapped(self, number, *rest):
        if number == step:
            action()
        return original(self, number, *rest)

    monkeypatch.setattr(GRPO, "step", wrapped)


def test_the_run_folder_tells_everything(model_folder: Path, tmp_path: Path, capsys) -> None:
    config = run_config(model_folder, tmp_path, "training.run_name=one", "training.max_steps=3")
    folder = train(config)
    assert folder == tmp_path / "one"
    assert load_config(str(folder / "config.yaml")) == config
    assert steps_of(folder, "train") == [1, 2, 3]
    assert steps_of(folder, "eval") == [0, 2, 3], "at the start, every second step, and at the end"

    samples = read_rows(folder / "samples.jsonl")
    assert [sum(s["kind"] == kind for s in samples) for kind in ("train", "eval")] == [3 * 8, 3 * 6]
    sample = next(s for s in samples if s["kind"] == "train")
    assert sample.keys() >= {"step", "prompt", "response", "reward", "parts", "reason", "advantage", "finish_reason"}
    assert sample["prompt"].startswith("<|im_start|>user\nMake ")
    assert sample["reward"] == pytest.approx(sum(c.isdigit() for c in sample["response"]) / len(sample["response"]))
    for one in samples:
        assert len(one["token_characters"]) == len(one["token_logprobs"]) == one["length"]
        assert sum(one["token_characters"]) == len(one["response"])
        assert (one["finish_reason"] == "stop") <= (one["token_characters"][-1] == 0)
    assert min(min(one["token_logprobs"]) for one in samples) < -0.1
    by_group = [s["advantage"] for s in samples if s["kind"] == "train"][:4]
    assert sum(by_group) == pytest.approx(0, abs=1e-9)
    assert any(by_group)

    summary = json.loads((folder / "summary.json").read_text())
    evals = [row for row in read_rows(folder / "metrics.jsonl") if row["kind"] == "eval"]
    assert summary["steps"] == 3
    assert summary["before"]["success"] == evals[0]["eval/success"]
    assert summary["after"]["greedy_success"] == evals[-1]["eval/greedy_success"]
    assert 0 <= summary["after"]["success_low"] <= summary["after"]["success"] <= summary["after"]["success_high"] <= 1
    assert summary["seconds"] > 0
    assert summary["sampled_tokens_per_s"] > 0
    assert summary["peak_gib"] > 0
    assert summary["machine"]["device"] == "cpu"
    assert summary["code"]["grpo_zero"]

    assert list(folder.glob("events.out.tfevents.*"))
    assert latest_checkpoint(folder / "checkpoints").name == "step_000003"
    out = capsys.readouterr().out
    for text in ("step 1/3", "eval at step 0", "reward", "digits", "left", "sampled success", str(folder)):
        assert text in out


def test_checkpoints_every_interval_and_at_the_end(model_folder: Path, tmp_path: Path) -> None:
    more = (
        "training.run_name=many",
        "training.ckpt_save_interval=2",
        "training.max_steps=3",
        f"training.ckpt_dir={tmp_path}/c",
    )
    train(run_config(model_folder, tmp_path, *more))
    assert sorted(path.name for path in (tmp_path / "c" / "many").iterdir()) == ["step_000002", "step_000003"]


def test_one_pass_over_the_data_when_no_number_of_steps_is_given(model_folder: Path, tmp_path: Path) -> None:
    more = ("training.max_steps=null", "data.train_size=7", "training.eval_interval=0", "training.run_name=pass")
    folder = train(run_config(model_folder, tmp_path, *more))
    assert steps_of(folder, "train") == [1, 2, 3]
    assert steps_of(folder, "eval") == []
    assert json.loads((folder / "summary.json").read_text())["before"] is None


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(
    model_folder: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    on_step(monkeypatch, 2, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    settings = run_settings(model_folder, tmp_path, "training.run_name=stopped")
    assert main(["train", "--config", "quickstart", *settings]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    folder = tmp_path / "stopped"
    assert steps_of(folder, "train") == [1, 2]
    assert latest_checkpoint(folder / "checkpoints").name == "step_000002"
    out = capsys.readouterr().out
    assert f"stopped after step 2 of 4; go on with: grpo-zero train --resume {folder}" in out
    assert json.loads((folder / "summary.json").read_text())["steps"] == 2

    assert main(["train", "--resume", str(folder)]) == 0  # the command it named
    assert steps_of(folder, "train") == [1, 2, 3, 4]


def test_ctrl_c_in_the_first_evaluation_leaves_a_run_to_go_on_from(
    model_folder: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    original = Run.evaluate

    def interrupted(self, step: int, *rest: Any) -> None:
        if step == 0:
            signal.raise_signal(signal.SIGINT)
        original(self, step, *rest)

    monkeypatch.setattr(Run, "evaluate", interrupted)
    settings = run_settings(model_folder, tmp_path, "training.run_name=early", "training.eval_interval=2")
    assert main(["train", *settings]) == 130
    folder = tmp_path / "early"
    monkeypatch.setattr(Run, "evaluate", original)
    assert steps_of(folder, "train") == []
    assert f"stopped after step 0 of 4; go on with: grpo-zero train --resume {folder}" in capsys.readouterr().out

    assert main(["train", "--resume", str(folder)]) == 0
    assert steps_of(folder, "train") == [1, 2, 3, 4]
    assert steps_of(folder, "eval") == [0, 2, 4], "not evaluated twice at step 0"


def test_a_second_ctrl_c_stops_at_once(model_folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    on_step(monkeypatch, 2, twice)
    settings = run_settings(model_folder, tmp_path, "training.run_name=hard", "training.ckpt_save_interval=1")
    assert main(["train", *settings]) == 130
    assert "stopped" in capsys.readouterr().err
    assert steps_of(tmp_path / "hard", "train") == [1]
    assert latest_checkpoint(tmp_path / "hard" / "checkpoints").name == "step_000001"


def test_max_minutes_stops_after_a_step(model_folder: Path, tmp_path: Path, capsys) -> None:
    settings = run_settings(model_folder, tmp_path, "training.run_name=short", "training.max_minutes=1e-6")
    assert main(["train", *settings]) == 0
    folder = tmp_path / "short"
    assert steps_of(folder, "train") == [1], "one step even so, or there would be nothing to go on from"
    assert f"stopped after step 1 of 4; go on with: grpo-zero train --resume {folder}" in capsys.readouterr().out
    assert latest_checkpoint(folder / "checkpoints").name == "step_000001"


def test_a_run_without_a_checkpoint_begins_again(model_folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    def fail() -> None:
        raise RuntimeError("power cut")

    original = GRPO.step
    on_step(monkeypatch, 2, fail)
    config = run_config(model_folder, tmp_path, "training.run_name=cut")
    with pytest.raises(RuntimeError, match="power cut"):
        train(config)
    monkeypatch.setattr(GRPO, "step", original)
    train(config, tmp_path / "cut")
    assert "note: no checkpoint yet: starting from the first step" in capsys.readouterr().out
    assert steps_of(tmp_path / "cut", "train") == [1, 2, 3, 4]
    assert steps_of(tmp_path / "cut", "eval") == [0, 2, 4]
