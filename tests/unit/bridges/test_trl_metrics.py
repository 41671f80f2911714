"""TRL's logs under our names and in our units, in a file that survives what happens to a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_zero.bridges.trl import MetricsCallback
from grpo_zero.bridges.trl.names import CONVERTED, NAMES, markdown_table, our_metrics, our_name
from grpo_zero.errors import UserError
from grpo_zero.observe.catalogue import CATALOGUE, find_metric

ROOT = Path(__file__).parents[3]
ARGS = SimpleNamespace(reward_weights=[1.0, 0.5], generation_batch_size=6)
LOGS = {
    "loss": 0.25,
    "grad_norm": float("nan"),
    "num_tokens": 900.0,
    "completions/mean_length": 20.5,
    "completions/min_length": 3.0,
    "rewards/format/mean": 0.1,
    "rewards/format/std": 0.2,
    "rewards/my_own/mean": 0.8,
    "rewards/my_own/std": 0.3,
    "reward": 0.5,
    "success": 0.4,
    "failed_share": 0.0,
    "note/strict": 0.3,
    "clip_ratio/low_min": None,
    "epoch": 0.1,
}


def test_names_units_and_weights() -> None:
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert our_metrics(LOGS, reward_weights=[1.0, 0.5], answers_per_rollout=6) == {
        "loss": 0.25,
        "grad_norm": nan,
        "num_tokens": 123,
        "trl/num_tokens": 900.0,
        "length": 20.5,
        "trl/completions/min_length": 3.0,
        "reward/format": 0.1,
        "trl/rewards/format/std": 0.2,
        "reward/my_own": 0.4,
        "trl/rewards/my_own/std": 0.3,
        "reward": 0.5,
        "success": 0.4,
        "note/strict": 0.3,
        "trl/epoch": 0.1,
    }
    failed = our_metrics({"failed_share": 0.2}, reward_weights=None, answers_per_rollout=6)
    assert failed == {"failed_share": 0.2}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("eval_reward", "eval/reward"),
        ("eval_rewards/answer/mean", "eval/reward/answer"),
        ("eval_success", "eval/success"),
        ("eval_note/lenient", "eval/note/lenient"),
        ("eval_runtime", "eval/eval_s"),
        ("eval_failed_share", "trl/eval_failed_share"),
        ("eval_num_tokens", "trl/eval_num_tokens"),
        ("step", "trl/step"),
        ("note/", "trl/note/"),
    ],
)
def test_names_of_evaluations_and_others(theirs: str, ours: str) -> None:
    assert our_name(theirs) == ours
    assert find_metric(ours) is not None


def test_every_name_of_the_catalogue_is_mapped() -> None:
    for theirs, ours in NAMES.items():
        expected = "trl/num_tokens" if theirs == "num_tokens" else ours.replace("<part>", "x")
        assert our_name(theirs.replace("{f}", "x")) == expected
    assert CONVERTED.keys() <= CATALOGUE.keys()
    assert set(NAMES.values()) == {metric.name for metric in CATALOGUE.values() if metric.trl}


def test_the_page_has_the_table() -> None:
    assert markdown_table() in (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")


def state(step: int, is_first: bool = True) -> Any:
    return SimpleNamespace(global_step=step, is_world_process_zero=is_first)


def rows_in(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [(json.loads(line)["step"], json.loads(line)["kind"]) for line in lines]


def test_rows_of_a_run_that_is_resumed(tmp_path: Path) -> None:
    callback = MetricsCallback(tmp_path / "run")
    callback.on_log(ARGS, state(0), None, {"eval_reward": 0.1})  # an evaluation before training
    callback.on_train_begin(ARGS, state(0), None)
    for step in (1, 2, 3):
        callback.on_log(ARGS, state(step), None, LOGS)
    callback.on_log(ARGS, state(3), None, {"eval_reward": 0.2})
    callback.on_log(ARGS, state(3), None, {"train_runtime": 1.0, "train_loss": 2.0})
    callback.on_log(ARGS, state(3), None, {"eval_reward": 0.3})  # after training
    first = [(0, "eval"), (1, "train"), (2, "train"), (3, "train"), (3, "eval"), (3, "eval")]
    assert rows_in(tmp_path / "run") == first

    resumed = MetricsCallback(tmp_path / "run")
    resumed.on_train_begin(ARGS, state(2), None)
    resumed.on_log(ARGS, state(3), None, LOGS)
    assert rows_in(tmp_path / "run") == first[:4]

    with pytest.raises(UserError, match=r"holds the steps of another run: give MetricsCallback another folder"):
        MetricsCallback(tmp_path / "run").on_train_begin(ARGS, state(0), None)
    assert rows_in(tmp_path / "run") == first[:4]


def test_one_process_writes(tmp_path: Path) -> None:
    callback = MetricsCallback(tmp_path / "run")
    callback.on_train_begin(ARGS, state(0, is_first=False), None)
    callback.on_log(ARGS, state(1, is_first=False), None, LOGS)
    assert not (tmp_path / "run").exists()


def test_without_trl_one_sentence_says_what_to_install() -> None:
    code = (
        "import importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'trl' else found(name, *more)\n"
        "import grpo_zero, grpo_zero.bridges, sys\n"
        "assert 'transformers' not in sys.modules\n"
        "import grpo_zero.bridges.trl"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: grpo_zero.bridges.trl needs TRL")
    assert "pip install 'grpo-zero[trl]'" in done.stderr
