"""What a model writes reaches terminal and log as text: nothing moves the cursor, retitles, reorders or stops the program."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grpo_zero
from grpo_zero.errors import UserError
from grpo_zero.observe.console import Console
from grpo_zero.observe.files import JsonLines, MetricsFile, SamplesFile, read_rows, write_summary
from grpo_zero.observe.record import SampleRecord, StepRecord
from grpo_zero.observe.terminal import harmless, one_line, show

HARM = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
ANY = st.characters(exclude_categories=())
"""Every code point, lone surrogates too."""
PIECES = [
    "\x1b[",
    "\x1b]0;",
    "\x07",
    "\x1b\\",
    "\x9b",
    "\x9d",
    "\x1bP",
    "31m",
    "2J",
    "\x1b(B",
    "\x1bc",
    "\r",
    "\n",
    "\t",
    "a",
]
TEXTS = st.text(ANY) | st.lists(st.sampled_from(PIECES) | st.text(ANY, max_size=2)).map("".join)


@given(TEXTS)
def test_nothing_harmful_is_left_and_nothing_else_is_lost(text: str) -> None:
    made = harmless(text)
    assert not HARM.search(made)
    assert harmless(made) == made
    if not HARM.search(text):
        assert made == text
    assert one_line(text) == " ".join(made.split())


@given(st.text(ANY), st.sampled_from(["ascii", "utf-8", "cp1252", "utf-16"]))
def test_any_stream_takes_any_text(text: str, encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    show(text, stream=stream)
    stream.seek(0)
    assert not HARM.search(stream.read())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\nof two lines", "plain\ttext\nof two lines"),
        ("日本語 ответ ٤٢ 👍🏽 é", "日本語 ответ ٤٢ 👍🏽 é"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b[2J\x1b[1;1Htop", "top"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://a.b\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x9cafter", "after"),
        ("\x1bP1$r\x1b\\x", "x"),
        ("\x1b(0lqk\x1b(B", "lqk"),
        ("\x1bcafter a reset", "after a reset"),
        ("\x1b]0;never closed", "0;never closed"),
        ("\x1b]0;closed\non the next line\x07", "0;closed\non the next line"),
        ("\x1b", ""),
        ("step 1\rstep 2", "step 1step 2"),
        ("over\b\b\b\bwritten", "overwritten"),
        ("\x1b\x1b[31m[31mred", "[31mred"),
        ("safe\u202egpj.exe", "safe<U+202E>gpj.exe"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
    ],
)
def test_cases(text: str, expected: str) -> None:
    assert harmless(text) == expected


@pytest.mark.parametrize(
    "piece", ["\x1b", "\x1b[", "\x1b[1;", "\x1b]0;", "\x1b[ ", "\x9d", "\x1b]a\x1b", "\u202e", "\ud800", "7"]
)
def test_long_texts_take_no_longer_than_they_are_long(piece: str) -> None:
    start = time.perf_counter()
    harmless(piece * (100_000 // len(piece)))
    assert time.perf_counter() - start < 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_console_prints_harmless_text() -> None:
    stream = Terminal()
    console = Console(stream=stream)
    console.line("answer \x1b]0;x\x07\x1b[2J42\u202e")
    console.write(StepRecord(1, "train", {"reward": 1.0, "reward/\x1b[31mpart": 1.0}))
    assert stream.getvalue() == "answer 42<U+202E>\nstep 1  reward 1.000 (part 1.00)\n"
    console.status("sampling\x1b[2J\n1/2")
    assert stream.getvalue().endswith("\rsampling 1/2")


def test_standard_output_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    show("a\x07b")
    assert capsys.readouterr().out == "ab\n"
    assert sys.stdout.isatty() is False


@pytest.mark.parametrize(
    "module",
    ["commands/chat.py", "commands/check_task.py", "commands/evaluate.py", "commands/doctor.py", "observe/console.py"],
)
def test_what_shows_texts_of_others_has_no_print(module: str) -> None:
    source = (Path(grpo_zero.__file__).parent / module).read_text(encoding="utf-8")
    called = {
        node.func.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    }
    assert "print" not in called


@given(text=st.text(ANY))
def test_samples_keep_every_text_exactly(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("samples") / "samples.jsonl"
    file = SamplesFile(path)
    file.write(SampleRecord(1, "train", text, text, 0.0, {text: 0.0}, text, None, "stop", False, 3))
    file.write(SampleRecord(2, "train", "", "", 0.0, {}, "", None, "stop", False, 0))
    file.close()
    first, second = read_rows(path)
    # Two halves of a pair side by side are one character in JSON as in UTF-16.
    kept = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert (first["prompt"], first["response"], first["reason"]) == (kept,) * 3
    assert second["step"] == 2
    reopened = SamplesFile(path, lambda row: row["step"] == 1)
    reopened.close()
    assert read_rows(path) == [first]


def test_a_lone_surrogate_in_a_summary(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", {"model": "a\udc80×"})
    assert "×" in (tmp_path / "summary.json").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == {"model": "a\udc80×"}


@pytest.mark.parametrize(
    "line", ["{", "[1]", "7", "{}", '{"step": "1", "kind": "train"}', '{"step": 1}', "[" * 100_000]
)
def test_a_damaged_record_is_named_when_a_run_goes_on(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "kind": "train"}}\n{line}\n')
    JsonLines(path).close()
    with pytest.raises(UserError, match=r"metrics.jsonl line 2 (is no|is not|holds a) .*remove that line"):
        MetricsFile(path, lambda row: row["step"] < 2)
