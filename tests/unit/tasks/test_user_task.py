"""A user's file as a task: functions or a class, what verify may return, and sentences for everything that can be wrong."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks import load_task
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.types import Problem

GOOD = """
words = ["apple", "pear", "plum", "fig"]

def rows():
    return [{"word": word} for word in words]

def prompt(row):
    return f"Spell {row['word']} backwards."

def verify(row, completion):
    return completion.strip() == row["word"][::-1]
"""
AS_CLASS = """
from dataclasses import dataclass

@dataclass
class Helper:
    size: int = 3

class Spelling:
    response_start = "So: "
    system_prompt = "You spell."
    success = 0.5

    def rows(self, split):
        return [{"word": split + str(i)} for i in range(Helper().size)]

    def prompt(self, row):
        return [{"role": "user", "content": row["word"]}]

    def verify(self, row, completion, finished):
        return {"form": 0.25, "answer": 0.25 * finished}
"""


def write(tmp_path: Path, text: str, name: str = "my_task.py") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def verdict_of(tmp_path: Path, body: str):
    task = load_task(write(tmp_path, GOOD.replace('completion.strip() == row["word"][::-1]', body)))
    return task.verify(task.problem({"word": "fig"}), "gif")


def test_three_functions(tmp_path: Path) -> None:
    task = load_task(write(tmp_path, GOOD))
    train, test, facts = task.load("unused", test_size=1)
    assert [row["word"] for row in train] == ["apple", "pear", "plum"]
    assert facts == {"train": 3, "test": 1, "dropped": 0}
    problem = task.problem(test[0])
    assert problem.messages == ({"role": "user", "content": "Spell fig backwards."},)
    right, wrong = (task.verify(problem, text) for text in (" gif ", "fig"))
    assert (right.reward, right.correct, right.parts) == (1.0, True, {"reward": 1.0})
    assert (wrong.reward, wrong.correct) == (0.0, False)
    with pytest.raises(UserError, match="gives 4 rows: leave some"):
        task.load("unused", test_size=4)


@pytest.mark.parametrize(
    ("body", "name"),
    [("len(row['word'])", "3"), ("'short '", "short"), ("None", None), ("''", None)],
)
def test_difficulty_is_any_value_as_text(tmp_path: Path, body: str, name: str | None) -> None:
    own = GOOD + f"\ndef difficulty(row):\n    return {body}\n"
    assert load_task(write(tmp_path, own)).problem({"word": "fig"}).difficulty == name
    assert load_task(write(tmp_path, GOOD)).problem({"word": "fig"}).difficulty is None


def test_difficulty_of_a_class_and_one_that_raises(tmp_path: Path) -> None:
    own = AS_CLASS + "\n    def difficulty(self, row):\n        return {'test0': 'easy'}[row['word']]\n"
    task = load_task(write(tmp_path, own))
    assert task.problem({"word": "test0"}).difficulty == "easy"
    with pytest.raises(UserError, match=r"difficulty\(\) of .* raised KeyError: 'fig' for the row"):
        task.problem({"word": "fig"})


@pytest.mark.parametrize("suffix", ["", ":Spelling"])
def test_a_class(tmp_path: Path, suffix: str) -> None:
    task = load_task(write(tmp_path, AS_CLASS) + suffix)
    train, test, _ = task.load("unused", test_size=2)
    assert [row["word"] for row in train] == ["train0", "train1", "train2"]
    assert [row["word"] for row in test] == ["test0", "test1"]
    problem = task.problem(test[0])
    assert [message["content"] for message in problem.messages] == ["You spell.", "test0"]
    assert (task.response_start, problem.response_start) == ("So: ", "So: ")
    assert load_task(write(tmp_path, AS_CLASS), response_start="").response_start == ""
    whole, cut = (task.verify(problem, "x", finished=finished) for finished in (True, False))
    assert (whole.reward, whole.parts, whole.correct) == (0.5, {"form": 0.25, "answer": 0.25}, True)
    assert (cut.reward, cut.correct) == (0.25, False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("1 / 0", "verify raised ZeroDivisionError: division by zero"),
        ("float('nan')", "no finite number"),
        ("float('inf')", "no finite number"),
        ("'1.0'", "no finite number"),
        ("{}", "no finite number"),
        ("{'a': None}", "no finite number"),
        ("[1.0]", "no finite number"),
    ],
)
def test_failures_are_no_reward(tmp_path: Path, body: str, words: str) -> None:
    verdict = verdict_of(tmp_path, body)
    assert math.isnan(verdict.reward)
    assert verdict.failed
    assert not verdict.correct
    assert words in verdict.reason


def test_none_is_no_reward_and_no_failure(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, "None")
    assert math.isnan(verdict.reward)
    assert not verdict.failed


BAD = {
    "no file": (None, "There is no file"),
    "does not load": ("import nothing_like_this", "raised ModuleNotFoundError"),
    "no verify": (GOOD.partition("def verify")[0], "lacks the function verify"),
    "no such class": (GOOD, "has no class Spelling", ":Spelling"),
    "rows raise": (GOOD.replace("return [{", "return 1 / 0, [{"), "raised ZeroDivisionError"),
    "rows are no dicts": (GOOD.replace('{"word": word}', "word"), "expected dicts"),
    "prompt raises": (GOOD.replace("row['word']", "row['wrd']"), "raised KeyError"),
    "prompt is no text": (GOOD.replace('f"Spell', 'b"x" and 3 #'), "returned 3; expected a text"),
    "all rows held out": (GOOD.replace("for word in words", "for word in ['a', 'a']"), "no row to train on"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_files(tmp_path: Path, case: tuple[str, ...]) -> None:
    text, words, *suffix = case
    name = str(tmp_path / "nope.py") if text is None else write(tmp_path, text)
    with pytest.raises(UserError, match=words) as caught:
        load_task(name + "".join(suffix)).load("unused", test_size=1)
    assert "\n" not in str(caught.value)


def test_wording_of_another_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.prompt is not for a task of your own"):
        load_task(write(tmp_path, GOOD), prompt="Make {target}.")


HANGS = GOOD.replace(
    "    return completion.strip()",
    "    import os, time\n    if completion == 'hang':\n        time.sleep(60)\n"
    "    if completion == 'die':\n        os._exit(3)\n    return completion.strip()",
)


@pytest.fixture
def isolated(tmp_path: Path) -> Iterator[tuple[IsolatedTask, Problem]]:
    name = write(tmp_path, HANGS)
    task = IsolatedTask(load_task(name), partial(load_task, name), timeout_s=1.0, num_workers=2)
    yield task, task.problem({"word": "fig"})
    task.close()


def test_what_hangs_or_dies_costs_one_answer(isolated: tuple[IsolatedTask, Problem]) -> None:
    task, problem = isolated
    texts = ["gif", "hang", "die", "fig", "gif"]
    verdicts = task.verify_all([(problem, text, True) for text in texts])
    assert [verdict.correct for verdict in verdicts] == [True, False, False, False, True]
    assert [verdict.failed for verdict in verdicts] == [False, True, True, False, False]
    assert verdicts[1].reason == "verify took longer than 1 s"
    assert "died" in verdicts[2].reason
    start = time.perf_counter()
    assert task.verify(problem, "gif").correct, "new processes took their places"
    assert time.perf_counter() - start < 30


def test_a_row_that_cannot_be_sent_is_a_failure(isolated: tuple[IsolatedTask, Problem]) -> None:
    task, problem = isolated
    verdict = task.verify(replace(problem, row={"word": lambda: None}), "gif")
    assert verdict.failed
    assert "cannot be sent" in verdict.reason
    assert task.verify(problem, "gif").correct
