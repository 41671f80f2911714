"""``grpo-zero bench``: every phase with its figures, one JSON document at the end, comparisons that say what they compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_zero.bench.report import comparison
from grpo_zero.bench.step import PHASES
from grpo_zero.bench.workloads import NUM_PROBLEMS, WORKLOADS, problem_rows, workload_config
from grpo_zero.cli import main
from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown import CountdownTask

TINY = ["training.num_questions_per_batch=2", "training.batch_size=4", "training.max_gen_len=8"]


def test_a_step_by_phases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    assert main(["bench", "quickstart", "--repeats", "2", "--json", str(path), *TINY]) == 0
    output = capsys.readouterr().out
    result = json.loads(output.splitlines()[-1])
    assert result == json.loads(path.read_text())
    assert list(result["phases"]) == list(PHASES)
    parts = {name: facts["seconds"]["median"] for name, facts in result["phases"].items()}
    assert all(seconds > 0 for seconds in parts.values())
    assert sum(parts.values()) <= result["step_s"]["max"]
    for name in ("prefill", "decode", "update", "optimizer"):
        facts = result["phases"][name]
        assert facts["share_of_floor"] == pytest.approx(facts["floor_s"] / facts["seconds"]["median"], abs=0.02)
    assert result["settings"][-3:] == TINY
    assert 4 <= result["sampled_tokens"]["median"] <= 32
    assert result["peak_gib"] > 0
    assert f"decoding by {result['decoding']}\n" in output

    settings = [*TINY[:2], "training.decode_kernels=measured"]
    assert main(["bench", "quickstart", "--repeats", "1", "--compare", str(path), *settings]) == 0
    output = capsys.readouterr().out
    assert f"against {path}" in output
    assert "no comparison of the code alone: settings" in output
    assert "decoding by PyTorch, measured products\n" in output


def test_ratios_are_earlier_over_now() -> None:
    now = {"sample_s": {"median": 2.0}, "update_s": {"median": 1.0}, "step_s": {"median": 3.0}, "peak_gib": 1.0}
    earlier = {"sample_s": {"median": 5.0}, "update_s": {"median": 1.0}, "step_s": {"median": 6.0}, "peak_gib": 2.0}
    text = comparison(now | {"phases": {}}, earlier, "old.json")
    assert "sample 2.50, update 1.00, step 2.00, peak 2.00" in text


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_settings(name: str) -> None:
    config = workload_config(name, "folder", ["training.max_gen_len=7"])
    assert config.training.max_gen_len == 7
    assert config.training.num_answers_per_question >= 4
    with pytest.raises(UserError, match=f"the bench has {NUM_PROBLEMS} questions"):
        workload_config(name, "folder", ["training.num_questions_per_batch=65", "training.batch_size=130"])


def test_all_problems_can_be_posed() -> None:
    keys = {CountdownTask().problem(row).key for row in problem_rows(NUM_PROBLEMS)}
    assert len(keys) == NUM_PROBLEMS


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot be read"), ("[]", "cannot be read"), ("{}", "no result")]
)
def test_bad_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str) -> None:
    path = tmp_path / "earlier.json"
    if content is not None:
        path.write_text(content)
    assert main(["bench", "quickstart", "--compare", str(path)]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1
