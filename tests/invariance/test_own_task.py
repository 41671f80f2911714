"""A task of the user's own in a whole run: trained, evaluated, its failures counted, and a run that cannot go on stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.runs import run_settings

from grpo_zero.cli import main

TASK = """
def rows(split):
    return [{"n": n} for n in range(40 if split == "train" else 6)]

def prompt(row):
    return f"Make {row['n']} from {[row['n'], 1]}."

def verify(row, completion):
    if SHARE and len(completion) % SHARE == 0:
        raise ValueError("odd")
    return {"digits": sum(c.isdigit() for c in completion) / max(1, len(completion)), "form": 0.25 * completion.startswith("1")}
"""


def run(tmp_path: Path, model_folder: Path, share: int, *more: str) -> tuple[int, Path]:
    path = tmp_path / "my_task.py"
    path.write_text(TASK.replace("SHARE", str(share)))
    settings = [s for s in run_settings(model_folder, tmp_path / "runs") if not s.startswith("data.")]
    code = main(["train", "--task", str(path), *settings, "data.test_size=6", "training.run_name=own", *more])
    return code, tmp_path / "runs" / "own"


@pytest.mark.parametrize("isolated", [(), ("data.verify_timeout_s=20",)], ids=["here", "isolated"])
def test_a_run(tmp_path: Path, model_folder: Path, isolated: tuple[str, ...]) -> None:
    code, folder = run(tmp_path, model_folder, 7, *isolated)
    assert code == 0
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    assert len(steps) == 4
    assert all("reward/digits" in step and "reward/form" in step for step in steps)
    assert any(0 < step.get("failed_share", 0) <= 0.5 for step in steps)
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    failed = [sample for sample in samples if sample["reason"] == "verify raised ValueError: odd"]
    assert failed
    assert all(sample["reward"] is None for sample in failed)


def test_a_run_whose_verifier_fails_stops_with_a_sentence(
    tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(tmp_path, model_folder, 1)
    assert code == 2
    message = capsys.readouterr().err
    assert "Verification failed on 8 of the 8 answers of step 1" in message
    assert "verify raised ValueError: odd" in message
    assert message.count("\n") == 1
