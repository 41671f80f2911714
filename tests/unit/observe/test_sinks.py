"""Sinks by name: what a tracker is told, with fakes; what TensorBoard shows under the original's tags."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import run_config, run_settings

from grpo_zero.cli import main
from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.observe.files import read_rows
from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.sinks import open_sinks, require_installed
from grpo_zero.observe.tensorboard import TensorBoardSink, scalars
from grpo_zero.train.run import train


class FakeTracker(types.ModuleType):
    """Keeps what it is told, as the modules wandb and trackio are called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = types.SimpleNamespace(origin="fake.py")  # type: ignore[assignment]
        self.calls: list[tuple[str, Any]] = []

    def init(self, **given: Any) -> None:
        self.calls.append(("init", given))

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.calls.append(("log", (step, metrics)))

    def finish(self) -> None:
        self.calls.append(("finish", None))


@pytest.fixture(params=["wandb", "trackio"])
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeTracker:
    fake = FakeTracker(request.param)
    monkeypatch.setitem(sys.modules, request.param, fake)
    monkeypatch.delenv(f"{request.param.upper()}_PROJECT", raising=False)
    return fake


def test_a_tracker_gets_settings_and_numbers(tracker: FakeTracker, tmp_path: Path) -> None:
    name = tracker.__name__
    for _ in range(2):  # the second is a resumed run
        require_installed([name])
        (sink,) = open_sinks([name], tmp_path, {"training": {"max_steps": 3}}, keep_until_step=1)
        sink.write(StepRecord(1, "train", {"reward": 0.5}))
        sink.write(StepRecord(1, "eval", {"eval/success": 0.25}))
        sink.write_texts(1, ["a prompt and its answer"])
        sink.close()
    first, second = tracker.calls[:4], tracker.calls[4:]
    assert first == second, "a resumed run goes on as the same one"
    assert [kind for kind, _ in first] == ["init", "log", "log", "finish"]
    given = first[0][1]
    assert (given["project"], given["config"], given["resume"]) == (
        "grpo-zero",
        {"training": {"max_steps": 3}},
        "allow",
    )
    assert tmp_path.name in given["name"]
    assert first[1][1] == (1, {"reward": 0.5})
    assert first[2][1] == (1, {"eval/success": 0.25})


def test_the_trackers_own_variable_names_the_project(
    tracker: FakeTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{tracker.__name__.upper()}_PROJECT", "mine")
    open_sinks([tracker.__name__], tmp_path, {})
    assert tracker.calls[0][1]["project"] == "mine"


@pytest.mark.usefixtures("digits_task")
def test_a_run_writes_to_the_sinks_that_were_asked_for(
    tracker: FakeTracker, model_folder: Path, tmp_path: Path
) -> None:
    folder = train(run_config(model_folder, tmp_path, f"training.sinks=[{tracker.__name__}]", "training.max_steps=2"))
    logged = [given for kind, given in tracker.calls if kind == "log"]
    rows = read_rows(folder / "metrics.jsonl")
    assert [step for step, _ in logged] == [row["step"] for row in rows] == [0, 1, 2, 2]
    assert logged[1][1].keys() == rows[1].keys() - {"step", "kind"}
    assert tracker.calls[-1][0] == "finish"
    assert not list(folder.glob("events.out.tfevents.*"))


@pytest.mark.usefixtures("digits_task")
def test_no_sink_is_metrics_jsonl_alone(model_folder: Path, tmp_path: Path) -> None:
    folder = train(run_config(model_folder, tmp_path, "training.sinks=null", "training.max_steps=1"))
    assert read_rows(folder / "metrics.jsonl")
    assert not list(folder.glob("events.out.tfevents.*"))


def test_a_missing_package_is_one_sentence_before_the_run(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = run_settings(
        model_folder, tmp_path / "runs", "training.sinks=[tensorboard, wandb]", "data.task=countdown"
    )
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "wandb" else types.SimpleNamespace(origin="")
    )
    assert main(["train", *settings]) == 2
    error = capsys.readouterr().err
    assert "training.sinks has wandb, but the package is not installed: install it with `uv pip install wandb`" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_a_packages_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trackio").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UserError, match="trackio, but the package is not installed"):
        require_installed(["trackio"])


def test_an_unknown_sink_is_refused() -> None:
    with pytest.raises(UserError, match=r"training.sinks has wandbb, but it can have .*Did you mean 'wandb'\?"):
        load_config(None, ["training.sinks=[wandbb]"])


def test_tensorboard_has_the_originals_tags_too() -> None:
    metrics = {"reward": 0.6, "reward/format": 0.05, "success": 0.5, "loss": 0.1, "step_s": 2.0, "length": 9.0}
    assert dict(scalars(metrics)) == metrics | {
        "mean_reward": 0.6,
        "format_reward": 0.5,
        "success_rate/train": 0.5,
        "duration": 2.0,
        "mean_response_len": 9.0,
    }
    more = ("reward_std", "num_finished", "grad_norm", "entropy", "learning_rate", "eval/success")
    tags = {tag for tag, _ in scalars(dict.fromkeys(more, 1.0))} - set(more)
    assert tags == {"std_reward", "num_finished_episodes", "success_rate/eval"}


def test_tensorboard_shows_texts_as_they_are(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoardSink(tmp_path)
    sink.write_texts(3, ["<b>1 + 1</b> = 2", "a lone \ud800 surrogate"])
    sink.close()
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert accumulator.Tags()["tensors"] == ["text_0/text_summary", "text_1/text_summary"]
    (event,) = accumulator.Tensors("text_0/text_summary")
    assert event.step == 3
    assert event.tensor_proto.string_val[0] == b"<pre>&lt;b&gt;1 + 1&lt;/b&gt; = 2</pre>"
    assert accumulator.PluginTagToContent("text").keys() == {"text_0/text_summary", "text_1/text_summary"}
