"""A step's answers are found by bisection, whatever the lengths of the lines, and little of the file is read."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.recorded import line, sample, start_run, write_steps
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.dashboard import sample_blocks
from grpo_zero.dashboard.sample_blocks import block_rows, row_at


def rows(path: Path, step: int, kind: str) -> list[dict[str, Any]]:
    return [json.loads(text) for _, text in block_rows(path, step, kind)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_block_is_found_among_lines_of_any_length(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    noise = random.Random(seed)
    path = tmp_path_factory.mktemp("samples") / "samples.jsonl"
    written: dict[tuple[int, str], list[str]] = {}
    with path.open("w") as stream:
        for step in sorted(noise.sample(range(200), noise.randint(1, 40))):
            for kind in ("train", "eval"):
                for number in range(noise.choice([0, 1, 3, 20])):
                    response = f"{number}" + "x" * noise.choice([0, 10, 500, 20_000, 150_000])
                    stream.write(line(sample(step, kind, "q", response, "right")))
                    written.setdefault((step, kind), []).append(response)
    for step in range(-1, 202, 1 if len(written) < 20 else 7):
        for kind in ("train", "eval"):
            found = [row["response"] for row in rows(path, step, kind)]
            assert found == written.get((step, kind), []), (step, kind)


def test_rows_written_otherwise_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(
        "".join(json.dumps({"kind": "train", "step": step, "response": "x" * 9000}) + "\n" for step in range(50))
    )
    assert len(rows(path, 33, "train")) == 1


@pytest.mark.parametrize("damage", ['{"a": ' * 100_000, '{"step": ' + "9" * 5000 + ', "kind": "train"}', "\x00", "[]"])
def test_a_line_that_is_no_row_ends_its_block(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(line(sample(1, "train", "q", "whole", "right")) + damage + "\n")
    assert [row["response"] for row in rows(path, 1, "train")] == ["whole"]
    assert rows(path, 2, "train") == []


def test_a_torn_end_is_no_row_yet(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    whole = line(sample(1, "train", "q", "whole", "right"))
    path.write_text(whole + line(sample(1, "train", "q", "torn", "right"))[:-10])
    assert [row["response"] for row in rows(path, 1, "train")] == ["whole"]
    assert row_at(path, 0)["response"] == "whole"
    assert row_at(path, len(whole)) is None


def test_only_the_beginning_of_a_row_is_one(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    first = line(sample(1, "train", "q", "first", "right"))
    path.write_text(first + line(sample(1, "train", "q", "second", "right")))
    assert row_at(path, len(first))["response"] == "second"
    for offset in (-1, 1, len(first) - 1, len(first) + 1, 10**9):
        assert row_at(path, offset) is None, offset


def test_little_is_read_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = start_run(tmp_path / "run", 400)
    write_steps(folder, 0, 400, 400, questions=16, answers=8)
    path = folder / "samples.jsonl"
    assert path.stat().st_size > 15_000_000
    num_bytes = 0

    class Counting(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            return self.count(super().read(size))

        def readline(self, size: int | None = -1, /) -> bytes:
            return self.count(super().readline(size))

        def __next__(self) -> bytes:
            return self.count(super().__next__())

        def count(self, content: bytes) -> bytes:
            nonlocal num_bytes
            num_bytes += len(content)
            return content

    class CountingPath(type(path)):
        def open(self, *arguments: Any, **options: Any) -> Counting:
            return Counting(io.FileIO(self))

    found = list(sample_blocks.block_rows(CountingPath(path), 317, "train"))
    assert len(found) == 128
    assert num_bytes < sum(len(text) for _, text in found) + 500_000
