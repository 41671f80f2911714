"""The embedded default as a new user runs it, cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_zero.cli import main

SHORT = ["evaluation.num_problems=64", "evaluation.samples_per_problem=1"]


def test_the_packaged_model_can_do_what_the_docs_say(tmp_path: Path) -> None:
    """Sampled success before training is between 10 % and 50 % (about 30 %), with the form right nearly always."""
    assert main(["eval", *SHORT, "--json", str(tmp_path / "scores.json")]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert 0.1 < scores["sampled"]["success"]["mean"] < 0.5
    assert scores["greedy"]["success"]["mean"] > 0.25
    assert scores["sampled"]["parts"]["format"] > 0.09
    assert scores["num_problems"] == 64


def test_the_first_command_runs_and_its_run_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = tmp_path / "first"
    settings = [f"training.log_dir={tmp_path}", "training.run_name=first", "training.max_steps=2", *SHORT]
    assert main(["train", *settings]) == 0
    out = capsys.readouterr().out
    assert "sampled success" in out
    assert json.loads((run / "summary.json").read_text())["steps"] == 2
    answers = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert len(answers) == 2 * 384 + 2 * 64
    assert all("</think>" in answer["response"] for answer in answers if answer["reward"] >= 0.1)

    assert main(["eval", "--model", str(run), "evaluation.num_problems=8"]) == 0, "a run folder is a model"
    assert main(["export", str(run), str(tmp_path / "out"), "--dtype", "bfloat16"]) == 0
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 1_800_000


def test_chat_judges_a_problem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    lines = iter(["3 4 5 = 35", "what?", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    assert main(["chat", "--problem"]) == 0
    out = capsys.readouterr().out
    assert "reward" in out
    assert "'what?' is no problem" in out
