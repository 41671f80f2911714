"""Reading rows and cutting them into train and test."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown_data import countdown_rows, load_countdown, split_rows

ROWS = [
    {"nums": [1, 2, 3], "target": 6},
    {"nums": [4, 5], "target": 9},
    {"nums": [3, 1, 2], "target": 6},
    {"nums": [2, 2], "target": 4},
]


def write_parquet(file: Path, rows: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file)


def write_lines(file: Path, rows: list[dict]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_a_folder_of_parquet_files_is_read_in_order_of_name(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00001.parquet", ROWS[2:])
    write_parquet(tmp_path / "data" / "train-00000.parquet", ROWS[:2])
    assert countdown_rows(tmp_path) == ROWS


def test_single_files_are_read_with_all_columns(tmp_path: Path) -> None:
    rows = [{**row, "source": "here"} for row in ROWS]
    write_parquet(tmp_path / "rows.parquet", rows)
    write_lines(tmp_path / "rows.jsonl", rows)
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "rows.jsonl").read_bytes()))
    for name in ("rows.parquet", "rows.jsonl", "rows.jsonl.gz"):
        assert countdown_rows(tmp_path / name) == rows


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere does not exist.*'generate'"):
        countdown_rows(tmp_path / "nowhere")


def test_folder_without_parquet(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \.parquet file"):
        countdown_rows(tmp_path)


def test_unknown_file_type(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("nums,target\n")
    with pytest.raises(UserError, match=r"rows\.csv has a file type"):
        countdown_rows(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("name", "data", "culprit"),
    [
        ("a.jsonl", b"", "holds no rows"),
        ("a.jsonl", b"\n\n", "holds no rows"),
        ("a.jsonl", b'{"nums": [1, 2], "target": 3}\n{"nums": [1,\n', r"line 2 is not JSON"),
        ("a.jsonl", b"\n[1, 2]\n", "line 2 is a JSON list"),
        ("a.jsonl", b'{"numbers": [1, 2], "target": 3}\n', "line 1: .*no 'nums'"),
        ("a.jsonl", b'{"nums": [1, "x"], "target": 3}\n', "line 1: 'x' in"),
        ("a.jsonl", b"\xff\xfe\n", "cannot be read as UTF-8"),
        ("a.jsonl.gz", b"not gzip", "cannot be read as gzip"),
        ("a.jsonl.gz", gzip.compress(b"x" * 100)[:-12], "cannot be read as gzip"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\n", "not a readable parquet"),
        ("a.parquet", b"", "not a readable parquet"),
    ],
)
def test_broken_files_are_named_with_the_line(tmp_path: Path, name: str, data: bytes, culprit: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=f"(?s){name}.*{culprit}|{culprit}"):
        countdown_rows(tmp_path / name)


def test_parquet_without_the_columns(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [{"nums": [1], "answer": 1}])
    with pytest.raises(UserError, match=r"a\.parquet lacks the column 'target'; it has nums, answer"):
        countdown_rows(tmp_path / "a.parquet")


def test_parquet_with_a_bad_value_names_the_row(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [*ROWS, {"nums": [1, 2], "target": None}])
    with pytest.raises(UserError, match=r"a\.parquet row 4: None in"):
        countdown_rows(tmp_path / "a.parquet")


def test_an_empty_parquet_file_holds_no_rows(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ROWS)
    pq.write_table(pq.read_table(tmp_path / "a.parquet").slice(0, 0), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="holds no rows"):
        countdown_rows(tmp_path / "a.parquet")


def test_split_takes_the_last_rows_and_drops_the_same_tasks() -> None:
    train, test, num_dropped = split_rows(ROWS, 2)
    assert (train, test, num_dropped) == (ROWS[1:2], ROWS[2:], 1)


def test_split_without_test_rows_keeps_all() -> None:
    assert split_rows(ROWS, 0) == (ROWS, [], 0)


@pytest.mark.parametrize("test_size", [-1, 4, 5])
def test_split_refuses_a_size_that_leaves_nothing(test_size: int) -> None:
    with pytest.raises(UserError, match=f"test size is {test_size} for 4"):
        split_rows(ROWS, test_size)


def test_split_refuses_when_every_row_is_a_test_row() -> None:
    with pytest.raises(UserError, match="All 1 Countdown training rows"):
        split_rows([ROWS[0], ROWS[2]], 1)


def test_load_from_a_file(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [ROWS[3], *ROWS])
    train, test, facts = load_countdown(tmp_path / "a.jsonl", test_size=1, train_size=2)
    assert (train, test) == (ROWS[:2], ROWS[3:])
    assert facts == {"train": 2, "test": 1, "dropped": 1}
    with pytest.raises(UserError, match="train size of 9"):
        load_countdown(tmp_path / "a.jsonl", test_size=1, train_size=9)


def test_load_generated_rows() -> None:
    options = {"counts": (2, 2), "numbers": (1, 20), "targets": (5, 30)}
    train, test, facts = load_countdown("generate", test_size=5, train_size=20, seed=3, **options)
    assert (len(train), len(test)) == (20, 5)
    assert facts == {"train": 20, "test": 5, "dropped": 0}
    assert all(len(row["nums"]) == 2 for row in train + test)
    with pytest.raises(UserError, match="train size"):
        load_countdown("generate", test_size=5)


@pytest.mark.parametrize(("train_size", "test_size"), [(0, 1), (-1, 1), (1, -1)])
def test_load_refuses_impossible_sizes(train_size: int, test_size: int) -> None:
    with pytest.raises(UserError, match=f"train_size={train_size} and test_size={test_size}"):
        load_countdown("generate", test_size=test_size, train_size=train_size)
