"""Steps done again: equal where nothing was touched, and named where something was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.runs import run_config
from safetensors.torch import load_file, save_file

from grpo_zero.checkpoint.checksums import write_checksums
from grpo_zero.cli import main
from grpo_zero.runs import OPTIMIZER_FILE
from grpo_zero.train.run import train

pytestmark = pytest.mark.usefixtures("digits_task")

Run = Callable[..., Path]


@pytest.fixture
def run(model_folder: Path, tmp_path: Path) -> Run:
    return lambda *more: train(run_config(model_folder, tmp_path, "training.run_name=run", *more))


def edit_row(folder: Path, step: int, **changes: float) -> None:
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["step"] == step and row["kind"] == "train":
            row.update(changes)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    "more",
    [
        ["training.ckpt_save_interval=2"],
        [],  # one checkpoint: from the starting model
        ["training.ckpt_save_interval=2", "lora.rank=4"],
        ["training.ckpt_save_interval=3", "training.moment_bits=8", "training.updates_per_rollout=2"],
    ],
    ids=["two", "one", "lora", "8 bits"],
)
def test_an_honest_run_is_verified_to_the_last_bit(
    run: Run, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(*more)
    capsys.readouterr()
    assert main(["verify", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "verified: everything came out as recorded" in out
    assert "weights and optimizer states of step_000004: all" in out
    assert out.count(": all ") == 1 + (4 if not more else 4 - int(more[0][-1]))


def test_a_number_that_was_changed_is_named(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("training.ckpt_save_interval=2")
    edit_row(folder, 3, reward=0.99)
    edit_row(folder, 4, step_s=99.0, peak_gib=99.0)  # measurements are not compared
    assert main(["verify", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "step 3: 1 of" in out
    assert "reward was 0.99 and is 0." in out
    assert "step 4: all" in out
    assert "not verified: the above differs; the run was made on a machine like this one" in out


def test_a_weight_that_was_changed_is_named(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("training.ckpt_save_interval=2")
    checkpoint = folder / "checkpoints" / "step_000004"
    tensors = load_file(checkpoint / OPTIMIZER_FILE)
    tensors["embedding.weight/moment1"][0, 0] += 1.0
    save_file(tensors, checkpoint / OPTIMIZER_FILE)
    write_checksums(checkpoint)
    assert main(["verify", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "step 4: all" in out
    assert re.search(r"step_000004: 1 of \d+ differ: embedding\.weight/moment1 was 1\.0\d+ and is 0\.0", out)


def test_the_machine_is_named_where_it_is_another(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("training.ckpt_save_interval=2")
    edit_row(folder, 3, reward=0.99)
    summary = json.loads((folder / "summary.json").read_text())
    summary["machine"]["torch"] = "1.0"
    (folder / "summary.json").write_text(json.dumps(summary))
    assert main(["verify", str(folder)]) == 1
    assert "the run was made elsewhere (torch 1.0 -> " in capsys.readouterr().out


def test_fewer_steps_leave_the_weights_out(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("training.ckpt_save_interval=2")
    capsys.readouterr()
    assert main(["verify", str(folder), "--steps", "1"]) == 0
    out = capsys.readouterr().out
    assert "replaying steps 3 to 3" in out
    assert "weights" not in out


def test_what_cannot_be_verified_is_a_sentence(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run("training.ckpt_save_interval=2")
    for arguments, words in {("--steps", "0"): "--steps is 0"}.items():
        assert main(["verify", str(folder), *arguments]) == 2
        assert words in capsys.readouterr().err
    (folder / "metrics.jsonl").write_text("")
    assert main(["verify", str(folder)]) == 2
    assert "no row of step 3" in capsys.readouterr().err
    (folder / "checkpoints" / "step_000002" / OPTIMIZER_FILE).write_bytes(b"")
    assert main(["verify", str(folder)]) == 2
    assert "step_000002 is damaged (optimizer.safetensors has 0 bytes" in capsys.readouterr().err
    assert main(["verify", str(folder / "nowhere")]) == 2
    assert "is no run folder" in capsys.readouterr().err
