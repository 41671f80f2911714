"""The files of a run: readable while it runs, always valid JSON, whole after crash and resume."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from grpo_zero.observe.files import JsonLines, MetricsFile, SamplesFile, read_rows, write_summary
from grpo_zero.observe.record import SampleRecord, StepRecord

SAMPLE = SampleRecord(
    step=3,
    kind="train",
    prompt="Reach 24 with 6, 4.",
    response="<think>6 × 4\u2028</think>\n<answer>6*4</answer>",
    reward=1.1,
    parts={"format": 0.1, "answer": 1.0},
    reason="right",
    advantage=0.5,
    finish_reason="stop",
    correct=True,
    length=12,
)


def train(step: int, **metrics: float) -> StepRecord:
    return StepRecord(step=step, kind="train", metrics=metrics)


def test_metrics_are_on_disk_at_once_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    file = MetricsFile(path)
    file.write(train(1, reward=0.5))
    assert read_rows(path) == [{"step": 1, "kind": "train", "reward": 0.5}]
    file.close()
    file = MetricsFile(path)
    file.write(train(2, reward=0.6))
    file.close()
    assert [row["step"] for row in read_rows(path)] == [1, 2]


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.write(train(1, reward=math.nan, loss=math.inf, grad_norm=1e-9))
    file.close()
    row = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert row == {"step": 1, "kind": "train", "reward": None, "loss": None, "grad_norm": 1e-9}


def test_sample_keeps_text_and_parts_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file = SamplesFile(path)
    file.write(SAMPLE)
    file.close()
    [row] = read_rows(path)
    assert row["response"] == SAMPLE.response
    assert row["parts"] == {"format": 0.1, "answer": 1.0}
    assert row["correct"] is True
    assert "×" in path.read_text(encoding="utf-8"), "meant to be read by eye"


def test_resumed_file_equals_one_never_interrupted(tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole.jsonl", tmp_path / "resumed.jsonl"
    file = MetricsFile(whole)
    for step in range(1, 6):
        file.write(train(step, reward=step / 10))
    file.close()
    file = MetricsFile(resumed)
    for step in range(1, 5):
        file.write(train(step, reward=step / 10))
    file.close()
    # The process died while it wrote a line; the last checkpoint is of step 2.
    with resumed.open("a") as stream:
        stream.write('{"step": 5, "ki')
    file = MetricsFile(resumed, lambda row: row["step"] <= 2)
    for step in range(3, 6):
        file.write(train(step, reward=step / 10))
    file.close()
    assert resumed.read_bytes() == whole.read_bytes()


def test_torn_line_is_dropped_without_a_resume_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    # Torn in the middle of a character.
    path.write_bytes('{"step": 1}\n{"text": "×'.encode()[:-1])
    file = JsonLines(path)
    file.append({"step": 2})
    file.close()
    assert read_rows(path) == [{"step": 1}, {"step": 2}]


def test_reading_a_growing_file_leaves_out_the_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"step": 1}\n{"text": "×'.encode()[:-1])
    assert read_rows(path) == [{"step": 1}]
    path.write_text("")
    assert read_rows(path) == []


def test_summary_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"success": 0.5, "gap": math.nan})
    assert json.loads(path.read_text()) == {"success": 0.5, "gap": None}

    def crash(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("grpo_zero.observe.files.os.replace", crash)
    with pytest.raises(OSError, match="power cut"):
        write_summary(path, {"success": 0.9})
    assert json.loads(path.read_text())["success"] == 0.5
