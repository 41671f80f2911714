"""Windows, noise, and what is read from a run folder."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from grpo_zero.cli import main
from grpo_zero.config import load_config
from grpo_zero.doctor.evidence import Evidence, Series, read_run
from grpo_zero.errors import UserError
from grpo_zero.observe.files import read_tail
from grpo_zero.runs import write_config


def series(values: list[float]) -> Series:
    return Series("reward", tuple(range(1, len(values) + 1)), tuple(values))


def test_windows() -> None:
    short, long = series([1, 2, 3, 4, 5, 6]), series([float(value) for value in range(100)])
    assert (short.size, short.head.steps, short.tail.values) == (2, (1, 2), (5, 6))
    assert (long.size, long.tail.mean) == (10, 94.5)
    assert str(short.tail) == "reward 5.5 (steps 5 to 6)"
    assert series([0, 0, 0, 9, 9, 9, 1, 1, 1]).best.steps == (4, 5, 6)


def test_noise_is_no_rise_and_a_rise_is() -> None:
    numbers = random.Random(1)
    noise = [numbers.gauss(0, 1) for _ in range(60)]
    assert not series(noise).moved(0.0)
    assert series([value + 0.05 * step for step, value in enumerate(noise)]).rose(1.0)
    assert not series([value - 0.05 * step for step, value in enumerate(noise)]).rose(1.0)
    assert series([value - 0.05 * step for step, value in enumerate(noise)]).moved(1.0)


def test_nulls_are_left_out() -> None:
    rows = [{"step": 1, "loss": 1.0}, {"step": 2, "loss": None}, {"step": 3}]
    assert Evidence(load_config(None), rows).series("loss").steps == (1,)


def test_a_tail_is_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"row": index}) + "\n" for index in range(100)) + '{"row": 1')
    assert read_tail(path, 40) == [{"row": 98}, {"row": 99}]
    assert len(read_tail(path, 10_000)) == 100


def test_a_folder_without_a_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run folder"):
        read_run(tmp_path)
    write_config(tmp_path, load_config(None))
    with pytest.raises(UserError, match="without a training step yet"):
        read_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "kind": "sft", "loss": 1.0}\n')
    with pytest.raises(UserError, match="a run of grpo-zero sft"):
        read_run(tmp_path)


def test_the_command_prints_the_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(tmp_path, load_config(None))
    rows = [
        {"step": step, "kind": "train", "reward": 0.5, "truncated_share": 0.8, "length": 9.0} for step in range(1, 5)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["doctor", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "problem: Truncation\n  80.0 % of the answers are cut after 1024 tokens" in out
    assert "seen  truncated_share 0.8 (step 4)" in out
    assert "try   room for them: training.max_gen_len=2048" in out
    assert "more  docs/troubleshooting.md#truncation" in out
    assert out.endswith("1 finding.\n")
