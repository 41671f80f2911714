"""Files of rows that were cut, flipped or made to harm are read or refused in one sentence that names the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damage import damaged_bytes, damaged_json
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.commands.chat import parse_problem
from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown import CountdownTask
from grpo_zero.tasks.gsm8k import GSM8KTask
from grpo_zero.tasks.row_files import rows_of_file
from grpo_zero.train.demonstrations import read_demonstrations

ROWS = [{"nums": [3, 4, 5], "target": 35, "question": "How many?", "answer": "#### 35"}] * 3
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def use(file: Path) -> None:
    """Read, and pose each row as both tasks would."""
    try:
        for _, row in rows_of_file(file, ("nums",)):
            for task in (CountdownTask(), GSM8KTask()):
                try:
                    task.problem(row)
                except UserError as error:
                    assert_sentence(str(error))
    except UserError as error:
        assert_sentence(str(error))


def assert_sentence(text: str) -> None:
    assert text.endswith(".")
    assert len(text) < 3000


@given(content=damaged_bytes(LINES) | damaged_json(ROWS[0]) | st.binary())
def test_jsonl(folder: Path, content: bytes) -> None:
    (folder / "rows.jsonl").write_bytes(content)
    use(folder / "rows.jsonl")


@given(content=damaged_bytes(gzip.compress(LINES, mtime=0)) | st.binary())
def test_gzip(folder: Path, content: bytes) -> None:
    (folder / "rows.jsonl.gz").write_bytes(content)
    use(folder / "rows.jsonl.gz")


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue().to_pybytes()


@given(content=damaged_bytes(parquet()))
def test_parquet(folder: Path, content: bytes) -> None:
    (folder / "rows.parquet").write_bytes(content)
    use(folder / "rows.parquet")


@given(content=damaged_json({"prompt": "a", "response": "b"}) | st.binary())
def test_demonstrations(folder: Path, content: bytes) -> None:
    (folder / "sft.jsonl").write_bytes(content)
    try:
        assert all({"prompt", "response"} <= row.keys() for row in read_demonstrations(folder / "sft.jsonl"))
    except UserError as error:
        assert_sentence(str(error))


@given(st.text() | st.text("0123456789 ,=", max_size=40))
def test_what_is_typed_in_chat(line: str) -> None:
    try:
        row = parse_problem(line)
    except UserError as error:
        assert_sentence(str(error))
    else:
        assert row.keys() == {"nums", "target"}


@pytest.mark.parametrize("line", ["3 4 = " + "9" * 5000, "9" * 5000 + " = 3", "3 4 = 1234567890123"])
def test_numbers_of_thousands_of_digits_are_no_problem(line: str) -> None:
    with pytest.raises(UserError, match="is no problem: write the numbers"):
        parse_problem(line)
