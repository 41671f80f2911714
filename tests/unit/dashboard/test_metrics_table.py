"""metrics.jsonl as columns: what is added is read once, and a file written anew is read anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from grpo_zero.dashboard.growing_file import GrowingFile
from grpo_zero.dashboard.metrics_table import MetricsTable


def row(step: int, kind: str = "train", **metrics: float | None) -> str:
    return json.dumps({"step": step, "kind": kind, **metrics}) + "\n"


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    path, file = tmp_path / "f", GrowingFile()
    path.write_bytes(b"one\ntw")
    assert not file.is_replaced(path)
    assert list(file.new_lines(path)) == [b"one"]
    with path.open("ab") as stream:
        stream.write(b"o\nthree\n")
    assert not file.is_replaced(path)
    assert list(file.new_lines(path)) == [b"two", b"three"]
    assert list(file.new_lines(path)) == []


def test_lines_longer_than_a_reading(tmp_path: Path) -> None:
    path, file = tmp_path / "f", GrowingFile()
    long = b"x" * 3_500_000
    path.write_bytes(long + b"\nshort\n")
    assert [len(line) for line in file.new_lines(path)] == [len(long), 5]


def test_rows_come_in_as_they_are_written(tmp_path: Path) -> None:
    path, table = tmp_path / "metrics.jsonl", MetricsTable()
    table.refresh(None)
    path.write_text(row(0, "eval", **{"eval/success": 0.3}) + row(1, reward=0.1))
    table.refresh(path)
    version = table.version
    table.refresh(path)
    assert table.version == version
    with path.open("a") as stream:
        stream.write(row(2, reward=0.2, kl_reference=0.5) + row(3, reward=None))
    table.refresh(path)
    assert table.version != version
    steps, rewards = table.series("reward")
    assert steps.tolist() == [1, 2, 3]
    np.testing.assert_equal(rewards, [0.1, 0.2, np.nan])
    np.testing.assert_equal(table.series("kl_reference")[1], [np.nan, 0.5, np.nan])
    assert table.series("eval/success")[0].tolist() == [0]
    assert (table.last("reward"), table.last("nothing"), table.last_step()) == (0.2, None, 3)
    assert table.names() == ["reward", "kl_reference", "eval/success"]


def test_a_resumed_run_writes_its_file_anew(tmp_path: Path) -> None:
    """It drops rows by replacing the file, and what it writes then may be longer than what was there."""
    path, table = tmp_path / "metrics.jsonl", MetricsTable()
    path.write_text("".join(row(step, reward=step) for step in range(1, 6)))
    table.refresh(path)
    other = tmp_path / "other"
    other.write_text("".join(row(step, reward=10 * step) for step in range(1, 9)))
    os.replace(other, path)
    table.refresh(path)
    assert table.series("reward")[1].tolist() == [10.0 * step for step in range(1, 9)]


def test_a_file_cut_short_is_read_anew(tmp_path: Path) -> None:
    path, table = tmp_path / "metrics.jsonl", MetricsTable()
    path.write_text(row(1, reward=1) + row(2, reward=2))
    table.refresh(path)
    with path.open("r+") as stream:
        stream.truncate(len(row(1, reward=1)))
    table.refresh(path)
    assert table.series("reward")[1].tolist() == [1]


def test_damage_is_passed_over(tmp_path: Path) -> None:
    path, table = tmp_path / "metrics.jsonl", MetricsTable()
    path.write_bytes(b'{"step": 1, "rew\n[1]\n"x"\n{"step": "one"}\n\xff\xfe\n' + row(2, reward=2, odd="<b>").encode())
    table.refresh(path)
    assert table.series("reward")[0].tolist() == [2]
    assert "odd" not in table.names()
    path.unlink()
    table.refresh(path)
    assert table.last_step() == 2
