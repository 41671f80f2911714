"""The file of answers: back as it was written, whole or not at all, and a sentence for whatever is no such file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_zero.errors import UserError
from grpo_zero.scores.answers import Answer, read_answers, write_answers
from grpo_zero.scores.groups import grouped, in_order_of, problems_of, require_same_problems

ONE = Answer(
    model="embedded:countdown-tiny",
    problem="24:[4, 6]",
    difficulty="2 numbers",
    decoding="sampled",
    sample_index=0,
    prompt="Make 24 from [6, 4].",
    response="6 × 4\u2028 = 24",
    correct=True,
    reward=1.1,
    parts={"format": 0.1, "answer": 1.0},
    notes={"strict": 1.0},
    reason="right",
    failed=False,
    finish_reason="stop",
    num_tokens=7,
)
FAILED = replace(ONE, sample_index=1, correct=False, reward=math.nan, parts={}, notes={}, failed=True, difficulty=None)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    write_answers(path, [ONE, FAILED])
    first, second = read_answers(path)
    assert first == ONE
    assert math.isnan(second.reward)
    assert replace(second, reward=0.0) == replace(FAILED, reward=0.0)
    assert len(path.read_text().splitlines()) >= 2
    assert set(json.loads(path.read_text().split("\n")[0])) >= {"problem", "prompt", "response", "reward", "notes"}


def test_a_crash_leaves_no_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("grpo_zero.observe.files.os.replace", crash)
    with pytest.raises(OSError, match="power cut"):
        write_answers(tmp_path / "answers.jsonl", [ONE])
    assert not (tmp_path / "answers.jsonl").exists()


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no problem": (lambda row: row.pop("problem"), "its problem is missing"),
    "text for a truth": (lambda row: row.update(correct="yes"), "its correct is 'yes'"),
    "other decoding": (lambda row: row.update(decoding="beam"), "its decoding is 'beam'"),
    "reward is text": (lambda row: row.update(reward="1"), "its reward is '1'"),
    "notes are a list": (lambda row: row.update(notes=[1]), r"its notes is \[1\]"),
    "index below 0": (lambda row: row.update(sample_index=-1), "its sample_index is -1"),
}


@pytest.mark.parametrize(("spoil", "words"), BROKEN.values(), ids=BROKEN)
def test_a_line_that_is_no_answer(tmp_path: Path, spoil: Callable[[dict[str, Any]], object], words: str) -> None:
    path = tmp_path / "answers.jsonl"
    write_answers(path, [ONE])
    row = json.loads(path.read_text())
    spoil(row)
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=f"answers.jsonl line 1 is no answer, {words}"):
        read_answers(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no file .*nope.jsonl"):
        read_answers(tmp_path / "nope.jsonl")


def test_groups_are_by_decoding_and_problem() -> None:
    greedy = replace(ONE, decoding="greedy")
    other = [replace(answer, problem="7:[3, 4]") for answer in (greedy, ONE, FAILED)]
    groups = grouped([greedy, ONE, FAILED, *other], "x.jsonl")
    assert list(groups) == ["greedy", "sampled"]
    assert problems_of(groups) == ["24:[4, 6]", "7:[3, 4]"]
    assert [[answer.sample_index for answer in group] for group in groups["sampled"]] == [[0, 1], [0, 1]]
    turned = in_order_of(["7:[3, 4]", "24:[4, 6]"], groups)
    assert problems_of(turned) == ["7:[3, 4]", "24:[4, 6]"]
    assert turned["sampled"][0] == groups["sampled"][1]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([], "x.jsonl holds no answers"),
        ([ONE, FAILED, ONE], "sampled answer 0 to problem '24:.*2 times"),
        ([ONE, FAILED, replace(ONE, problem="b")], "1 sampled answers to problem 'b' and 2 to another"),
        ([ONE, replace(ONE, problem="b"), replace(ONE, decoding="greedy")], "0 greedy answers to problem 'b'"),
    ],
)
def test_answers_that_make_no_groups(answers: list[Answer], words: str) -> None:
    with pytest.raises(UserError, match=words):
        grouped(answers, "x.jsonl")


def test_other_problems_are_refused_from_either_side() -> None:
    require_same_problems(["a", "b"], "A", ["b", "a"], "B")
    with pytest.raises(UserError, match=r"A and B were not asked the same problems: B lacks 1 of the 2, e.g. 'b'"):
        require_same_problems(["a", "b"], "A", ["a"], "B")
    with pytest.raises(UserError, match=r"B and A were not asked the same problems: A lacks 1 of the 2, e.g. 'b'"):
        require_same_problems(["a"], "A", ["a", "b"], "B")
