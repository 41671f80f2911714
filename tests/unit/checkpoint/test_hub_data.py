"""A hub id in data.path: what is there wins, else the data set's repository is asked for, and what can be wrong is a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import errors

from grpo_zero.checkpoint.hub import data_path
from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.train.problems import load_rows, make_task

GSM8K = [{"question": f"q{i}", "answer": f"#### {i}"} for i in range(4)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str, list[str]]]:
    """A hub with a copy of two data sets in the folder ``cache``; what it was asked for."""
    calls: list[tuple[str, str, list[str]]] = []

    def fake(repo_id: str, allow_patterns: list[str], repo_type: str) -> str:
        calls.append((repo_id, repo_type, allow_patterns))
        return str(tmp_path / "cache" / repo_id)

    for name, rows in (
        ("openai/gsm8k/main/train-00000-of-00001", GSM8K[:3]),
        ("openai/gsm8k/main/test-00000-of-00001", GSM8K[3:]),
        ("openai/gsm8k/socratic/train-00000-of-00001", GSM8K[:1]),
        ("openai/gsm8k/socratic/test-00000-of-00001", GSM8K[1:2]),
        (
            "Jiayi-Pan/Countdown-Tasks-3to4/data/train-00000-of-00001",
            [{"nums": [1, 2, 3], "target": t} for t in (5, 6, 7)],
        ),
    ):
        path = tmp_path / "cache" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    monkeypatch.chdir(tmp_path)
    return calls


def rows_of(*settings: str) -> tuple[list[dict], list[dict]]:
    config = load_config(None, ["data.test_size=1", "evaluation.num_problems=1", *settings])
    return load_rows(config, make_task(config))[:2]


def test_ids_of_data_sets(asked: list[tuple[str, str, list[str]]]) -> None:
    assert rows_of("data.task=gsm8k", "data.path=openai/gsm8k") == (GSM8K[:3], GSM8K[3:]), "main of two variants"
    assert rows_of("data.task=gsm8k", "data.path=openai/gsm8k/socratic") == (GSM8K[:1], GSM8K[1:2])
    train, test = rows_of("data.path=Jiayi-Pan/Countdown-Tasks-3to4")
    assert [row["target"] for row in train + test] == [5, 6, 7]
    assert asked == [
        ("openai/gsm8k", "dataset", ["*.parquet", "*.jsonl", "*.jsonl.gz"]),
        ("openai/gsm8k", "dataset", ["socratic/*.parquet", "socratic/*.jsonl", "socratic/*.jsonl.gz"]),
        ("Jiayi-Pan/Countdown-Tasks-3to4", "dataset", ["*.parquet", "*.jsonl", "*.jsonl.gz"]),
    ]


def test_what_is_no_id_is_not_asked_for(asked: list[tuple[str, str, list[str]]], tmp_path: Path) -> None:
    own = tmp_path / "openai" / "gsm8k"
    own.mkdir(parents=True)
    for name in ("train", "test"):
        (own / f"{name}.jsonl").write_text(json.dumps({"question": name, "answer": "#### 1"}))
    assert rows_of("data.task=gsm8k", "data.path=openai/gsm8k")[0][0]["question"] == "train", "a local folder wins"
    for path in (
        "generate",
        "Countdown-Tasks-3to4",
        "data/rows.jsonl",
        "/data/rows",
        "../rows",
        "./data/rows",
        "a b/c",
    ):
        assert data_path(path) == path
    task = tmp_path / "my_task.py"
    task.write_text("rows = lambda: [{'n': n} for n in range(3)]\nprompt = str\nverify = lambda row, text: 0.0\n")
    rows_of(f"data.task={task}", "data.path=other/data")
    assert not asked


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.LocalEntryNotFoundError("offline"), "can't be downloaded .*hf download org/name --repo-type dataset"),
        (ConnectionError("no route"), r"The data set org/name is not in .*\(ConnectionError\)"),
        (errors.HFValidationError("bad id"), "There is no data set 'org/name' .* such as openai/gsm8k"),
    ],
)
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=words) as raised:
        data_path("org/name")
    assert "\n" not in str(raised.value)
