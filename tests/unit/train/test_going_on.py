"""Which checkpoint a run goes on from, with which config, and what a signal leaves behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import edit_json, make_model_folder, run_config, run_settings

from grpo_zero.changes import changes
from grpo_zero.cli import main
from grpo_zero.config import Config, load_config
from grpo_zero.errors import UserError
from grpo_zero.observe.files import read_rows
from grpo_zero.rollout.engine import Engine
from grpo_zero.runs import STATE_FILE, find_run, latest_checkpoint
from grpo_zero.runs import run_config as saved_config
from grpo_zero.train import checkpoints as checkpoints_module
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.resume import find_start
from grpo_zero.train.run import run_to_end, train

pytestmark = pytest.mark.usefixtures("digits_task")


@pytest.fixture
def config(model_folder: Path, tmp_path: Path) -> Config:
    return run_config(model_folder, tmp_path, "training.run_name=run", "training.ckpt_save_interval=1")


@pytest.fixture
def folder(config: Config) -> Path:
    return train(config)


def step_folder(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step_{step:06d}"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "file", ["optimizer.safetensors", "model/model.safetensors", "model/tokenizer.json", STATE_FILE]
)
def test_a_flipped_byte_is_passed_over_for_the_checkpoint_before(config: Config, folder: Path, file: str) -> None:
    flip(step_folder(folder, 4) / file)
    start = find_start(config, folder)
    assert (start.step, start.checkpoint) == (3, step_folder(folder, 3))
    (note,) = start.notes
    assert note.startswith("passed over step_000004: ")
    assert file in note


def test_a_checkpoint_of_another_model_is_passed_over(config: Config, folder: Path, tmp_path: Path) -> None:
    other_model = make_model_folder(tmp_path / "other_model")
    edit_json(other_model / "config.json", num_hidden_layers=1)
    other = train(run_config(other_model, tmp_path, "training.run_name=other"))
    shutil.rmtree(step_folder(folder, 4))
    shutil.copytree(step_folder(other, 4), step_folder(folder, 4))
    start = find_start(config, folder)
    assert start.step == 3
    assert "step_000004: it holds another model" in start.notes[0]


def test_no_usable_checkpoint_is_an_error_that_names_each(config: Config, folder: Path) -> None:
    for step in (3, 4):
        flip(step_folder(folder, step) / "optimizer.safetensors")
    with pytest.raises(UserError, match=r"None of the 2 checkpoints .*step_000004: .*step_000003: .*restore one"):
        find_start(config, folder)


def test_a_checkpoint_from_before_there_were_checksums_is_taken(config: Config, folder: Path) -> None:
    checkpoint = step_folder(folder, 4)
    (checkpoint / "checksums.json").unlink()
    assert find_start(config, folder).step == 3, "its state says that it had some"
    state = json.loads((checkpoint / STATE_FILE).read_text())
    del state["has_checksums"]
    (checkpoint / STATE_FILE).write_text(json.dumps(state))
    assert find_start(config, folder).step == 4


def test_what_may_change_is_listed_and_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(folder), "training.max_steps=5", "evaluation.greedy=false"]) == 0
    out = capsys.readouterr().out
    assert "changed since the run began: training.max_steps 4 -> 5, evaluation.greedy true -> false" in out
    assert saved_config(folder).training.max_steps == 5
    assert latest_checkpoint(folder / "checkpoints").name == "step_000005"


def test_what_must_stay_is_refused_by_name(folder: Path) -> None:
    given = load_config(
        str(folder / "config.yaml"), ["training.random_seed=2", "algorithm.clip_high=0.3", "training.max_steps=5"]
    )
    with pytest.raises(
        UserError, match=r"random_seed 1337 -> 2, algorithm\.clip_high .* -> 0\.3: leave them"
    ) as caught:
        train(given, folder)
    assert "max_steps" not in str(caught.value)
    assert saved_config(folder).training.max_steps == 4


def test_changes_are_none_between_equals(config: Config) -> None:
    assert changes(config, config) == []


def test_auto_finds_the_run_of_this_config(config: Config, folder: Path, model_folder: Path, tmp_path: Path) -> None:
    def of(*more: str) -> Config:
        return run_config(model_folder, tmp_path, *more)

    assert find_run(config, "train") == folder
    assert find_run(of("training.max_steps=9"), "train") == folder, "without a name: the latest that fits"
    assert find_run(of("training.learning_rate=1"), "train") is None
    assert find_run(of("training.run_name=none"), "train") is None
    assert find_run(of("training.max_steps=9"), "sft") is None, "another command's"
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.yaml").write_text("training: {unheard_of: 1}")
    assert find_run(of("training.max_steps=9"), "train") == folder


def test_auto_starts_a_run_and_goes_on_with_it(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = run_settings(model_folder, tmp_path, "training.run_name=auto", "training.max_steps=2")
    command = ["train", "--resume", "auto", "--config", "quickstart", *settings]
    assert main(command) == 0
    assert main([*command, "training.max_steps=3"]) == 0
    rows = [row["step"] for row in read_rows(tmp_path / "auto" / "metrics.jsonl") if row["kind"] == "train"]
    assert rows == [1, 2, 3]
    assert main(["sft", "--resume", str(tmp_path / "auto"), f"sft.output={tmp_path}/out"]) == 2
    assert "is a run of grpo-zero train: go on with grpo-zero train --resume" in capsys.readouterr().err


def untimed(folder: Path) -> list[dict[str, Any]]:
    keys = {"step", "kind", "reward", "loss", "grad_norm", "entropy", "eval/success", "eval/greedy_success"}
    return [{key: value for key, value in row.items() if key in keys} for row in read_rows(folder / "metrics.jsonl")]


def terminate_in(monkeypatch: pytest.MonkeyPatch, target: type, method: str, call: int) -> None:
    """SIGTERM at the end of that call of ``target.method``."""
    original, calls = getattr(target, method), []

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        result = original(self, *args, **kwargs)
        if len(calls) == call:
            signal.raise_signal(signal.SIGTERM)
        return result

    monkeypatch.setattr(target, method, wrapped)


@pytest.mark.parametrize(
    ("target", "method", "call", "saved"),
    [
        (Engine, "generate", 1, None),  # the first evaluation: nothing to save yet
        (Engine, "generate", 4, 1),  # sampling of step 2: dropped
        (AdamW, "begin", 2, 1),  # its update, before the weights are touched
        (AdamW, "step", 2, 2),  # and after
        (Engine, "generate", 5, 2),  # the evaluation after step 2
    ],
)
def test_sigterm_saves_at_once_and_the_run_goes_on_as_if_nothing_had_been(
    config: Config,
    folder: Path,
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: type,
    method: str,
    call: int,
    saved: int | None,
) -> None:
    cut = run_config(model_folder, tmp_path, "training.run_name=cut", "training.ckpt_save_interval=0")
    with monkeypatch.context() as patch:
        terminate_in(patch, target, method, call)
        cut_folder, code = run_to_end(cut)
    assert code == 143
    latest = latest_checkpoint(cut_folder / "checkpoints")
    assert (latest and latest.name) == (saved and f"step_{saved:06d}")
    train(cut, cut_folder)
    assert untimed(cut_folder) == untimed(folder)
    final = [step_folder(run, 4) / "model" / "model.safetensors" for run in (cut_folder, folder)]
    assert final[0].read_bytes() == final[1].read_bytes()


def fail_to_write(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_stops_the_run_in_a_sentence(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = checkpoints_module.save_file, []

    def fill(*args: Any) -> None:
        calls.append(1)
        (original if len(calls) < 3 else fail_to_write)(*args)

    monkeypatch.setattr(checkpoints_module, "save_file", fill)
    with pytest.raises(
        UserError, match=r"step 3 could not be written .*No space left.*step_000002 is the last good one: make"
    ):
        train(config)


def test_or_goes_on_without(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(checkpoints_module, "save_file", fail_to_write)
    settings = ("training.run_name=on", "training.ckpt_save_interval=2", "training.ckpt_on_error=continue")
    folder = train(run_config(model_folder, tmp_path, *settings))
    assert [row["step"] for row in read_rows(folder / "metrics.jsonl") if row["kind"] == "train"] == [1, 2, 3, 4]
    assert "there is none yet; going on as training.ckpt_on_error says" in capsys.readouterr().out
    assert list((folder / "checkpoints").iterdir()) == []


LIMITED = """
import resource, sys
from helpers.runs import DigitsTask, run_config
from pathlib import Path
from grpo_zero.tasks import TASKS
from grpo_zero.train.run import train
from grpo_zero.errors import UserError
TASKS["digits"] = DigitsTask
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
try:
    train(run_config(Path(sys.argv[1]), Path(sys.argv[2]), "training.run_name=full"))
except UserError as error:
    print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_a_file_system_that_refuses_is_a_sentence_too(model_folder: Path, tmp_path: Path) -> None:
    """With the real writer, whose errors are its own."""
    assert resource.RLIMIT_FSIZE is not None
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LIMITED, str(model_folder), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert "The checkpoint of step 4 could not be written" in done.stdout
    assert "make room there" in done.stdout
