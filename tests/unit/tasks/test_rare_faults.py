"""Faults of files, rows and packages that are rare, each with its sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks import load_task
from grpo_zero.tasks.question_files import read_questions
from grpo_zero.tasks.search_text import all_tries
from grpo_zero.tasks.solve import is_solvable
from grpo_zero.tasks.user_task import load_module, verdict_of
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.types import Problem, Verdict

PARTS = "def rows():\n    return []\ndef prompt(row):\n    return ''\ndef verify(row, completion):\n    return 1\n"
RAISING = (
    "class Own:\n    def __init__(self):\n        raise KeyError('why')\n    def rows(self): ...\n"
    "    def prompt(self, row): ...\n    def verify(self, row, completion): ...\n"
)


def test_a_colon_is_of_files_and_data_sets_alone() -> None:
    with pytest.raises(UserError, match="Task gsm8k:hard has a colon, which only"):
        load_task("gsm8k:hard")


def test_gsm8k_cannot_be_generated() -> None:
    with pytest.raises(UserError, match="GSM8K has no generator"):
        load_task("gsm8k").load("generate", test_size=1, train_size=2)


def test_more_held_out_rows_than_there_are(tmp_path: Path) -> None:
    for name, count in (("train", 3), ("test", 2)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"question": "{name} {i}"}}\n' for i in range(count)))
    assert read_questions(tmp_path, ("question",), 2)[2] == {"train": 3, "test": 2, "dropped": 0}
    with pytest.raises(UserError, match=r"data.test_size is 3, but .* has 2 test rows: give at most that many"):
        read_questions(tmp_path, ("question",), 3)


def test_tries_above_the_largest_value_are_left_out() -> None:
    assert {one.value for one in all_tries([7, 8])} == {15, 56, 1}
    assert {one.value for one in all_tries([7, 8], max_value=15)} == {15, 1}
    assert {one.value for one in all_tries([7, 8, 2], max_value=14)} == {1, 2, 3, 6, 11, 13}


def test_zero_is_made_of_a_part_that_is_zero() -> None:
    assert is_solvable([5, 5, 7, 11, 13, 17], 0)


def test_a_verdict_of_its_own_is_taken_as_it_is() -> None:
    own = Verdict(0.25, {"a": 0.25}, "mine")
    assert verdict_of(own, 1.0) is own


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("my_task.py", RAISING, "Own.. of .* raised KeyError: 'why'"),
        ("my_task.py", "1 / 0", "cannot be loaded: it raised ZeroDivisionError"),
    ],
)
def test_files_that_are_no_task(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    suffix = ":Own" if "class" in text else ""
    with pytest.raises(UserError, match=words):
        load_task(f"{tmp_path / name}{suffix}")


def test_a_module_is_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "my_task.txt").write_text(PARTS)
    with pytest.raises(UserError, match=r"my_task.txt is no Python file: its name has to end with .py"):
        load_module(str(tmp_path / "my_task.txt"))


class Counting:
    """Judges by length; needs no process to be tested."""

    name = "counting"
    response_start = ""
    example = None

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        return Verdict(float(len(completion)), {}, "counted")


def test_groups_of_a_task_that_judges_one_by_one() -> None:
    problem = Problem((), "", {}, "key")
    task = IsolatedTask(Counting(), Counting, num_workers=2, timeout_s=60.0)
    try:
        found = task.verify_groups([(problem, [("a", True), ("bb", False)]), (problem, [("ccc", True)])])
    finally:
        task.close()
    assert [[verdict.reward for verdict in group] for group in found] == [[1.0, 2.0], [3.0]]
