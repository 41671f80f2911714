"""Rows from files: one file or a folder, split, checked, nothing held out among the training rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks.question_files import read_questions

ROWS = [{"question": f"q{i}", "answer": "#### 1"} for i in range(6)]
COLUMNS = ("question", "answer")


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    text = "\n".join(map(json.dumps, rows)) + "\n\n"
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_one_file_holds_out_its_last_rows(tmp_path: Path, name: str) -> None:
    train, test, facts = read_questions(write(tmp_path / name, [*ROWS, {**ROWS[0], "question": " q0 "}]), COLUMNS, 2)
    assert [row["question"] for row in train] == ["q1", "q2", "q3", "q4"], "q0 is held out in another spelling"
    assert [row["question"] for row in test] == ["q5", " q0 "]
    assert facts == {"train": 4, "test": 2, "dropped": 1}


def test_a_folder_holds_out_its_first_test_rows(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", ROWS[:3])
    write(tmp_path / "test-00000.parquet", ROWS[2:])
    train, test, facts = read_questions(tmp_path, COLUMNS, 2)
    assert (train, test) == (ROWS[:2], ROWS[2:4])
    assert facts == {"train": 2, "test": 2, "dropped": 1}


def test_bad_files(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", ROWS)
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "list.jsonl").write_text("[1]")
    (tmp_path / "bad.parquet").write_text("x")
    (tmp_path / "folder").mkdir()
    for path, size, words in (
        (tmp_path / "nope", 1, "there are no rows"),
        (tmp_path / "bad.jsonl", 1, "line 1 is not JSON"),
        (tmp_path / "list.jsonl", 0, "line 1 is a JSON list"),
        (tmp_path / "bad.parquet", 0, "not a readable parquet"),
        (tmp_path / "folder", 0, "begins with 'train'"),
        (good, 6, "has 6 rows"),
        (write(tmp_path / "c.jsonl", [{"question": "q"}]), 0, "lacks the column 'answer'"),
        (write(tmp_path / "same.jsonl", [ROWS[0], ROWS[0]]), 1, "no row to train on"),
    ):
        with pytest.raises(UserError, match=words):
            read_questions(path, COLUMNS, size)


def test_a_repository_of_a_data_set(tmp_path: Path) -> None:
    """The files are one folder down, in several parts; without test rows the last training rows are held out."""
    for name, rows in (("train-00000-of-00002", ROWS[:2]), ("train-00001-of-00002", ROWS[2:])):
        (tmp_path / "data").mkdir(exist_ok=True)
        write(tmp_path / "data" / f"{name}.parquet", rows)
    train, test, _ = read_questions(tmp_path, COLUMNS, 2)
    assert (train, test) == (ROWS[:4], ROWS[4:])
    (tmp_path / "main").mkdir()
    write(tmp_path / "main" / "train.jsonl", ROWS[:1])
    write(tmp_path / "main" / "test.jsonl", ROWS[1:2])
    assert read_questions(tmp_path, COLUMNS, 1)[:2] == (ROWS[:1], ROWS[1:2])
    (tmp_path / "main").rename(tmp_path / "hard")
    (tmp_path / "data").rename(tmp_path / "easy")
    with pytest.raises(UserError, match=r"training rows in easy, hard: name one, as in data\.path=.*/easy"):
        read_questions(tmp_path, COLUMNS, 1)
    (tmp_path / "easy" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(UserError, match="has 2 rows"):
        read_questions(tmp_path / "easy", COLUMNS, 2)
