"""Reward functions written for TRL, as they are: arguments by name, None, weights, and what can be wrong."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks import load_task

FUNCTIONS = """
def accuracy(completions, solution, **kwargs):
    assert kwargs["prompts"] and "level" in kwargs
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [1.0 if text == gold else 0.0 for text, gold in zip(texts, solution)]

def brevity(prompts, completions):
    return [None if c == "?" else 1 / (1 + len(c)) for c in completions]

def no_opinion(completions, **kwargs):
    return [None] * len(completions)

def raises(completions, **kwargs):
    raise KeyError("solution")

def wrong_count(completions, **kwargs):
    return [1.0, 2.0]

def number(completions, **kwargs):
    return 1.0

def text(completions, **kwargs):
    return ["1.0"]

def infinite(completions, **kwargs):
    return [float("inf")]

def wants_ids(completions, completion_ids):
    return [0.0]
"""
ROW = {"prompt": "2+2?", "solution": "4", "level": 1}


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "my_rewards.py").write_text(FUNCTIONS)
    return str(tmp_path / "my_rewards.py")


def task_of(file: str, *names: str, **options):
    return load_task("rewards", rewards=[f"{file}:{name}" for name in names], **options)


def test_values_are_weighted_and_logged_apart(file: str) -> None:
    task = task_of(file, "accuracy", "brevity", reward_weights=[1.0, 0.5])
    problem = task.problem(ROW)
    verdict = task.verify(problem, "4")
    assert verdict.parts == {"accuracy": 1.0, "brevity": 0.25}
    assert (verdict.reward, verdict.correct) == (1.25, True)
    assert task.verify(problem, "?").parts == {"accuracy": 0.0}, "None is no value by that function"
    assert not task.verify(problem, "5").correct


def test_a_column_names_the_difficulty(file: str) -> None:
    task = task_of(file, "accuracy")
    assert task.problem(ROW | {"difficulty": 5}).difficulty == "5"
    assert task.problem(ROW).difficulty is None


def test_chat_prompts_get_chat_completions(file: str) -> None:
    task = task_of(file, "accuracy", system_prompt="Be brief.")
    problem = task.problem(ROW | {"prompt": [{"role": "user", "content": "2+2?"}]})
    assert [message["role"] for message in problem.messages] == ["system", "user"]
    assert task.verify(problem, "4").correct


def test_no_opinion_of_any_is_no_reward(file: str) -> None:
    task = task_of(file, "no_opinion")
    verdict = task.verify(task.problem(ROW), "4")
    assert math.isnan(verdict.reward)
    assert not verdict.failed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised KeyError"),
        ("wrong_count", r"returned [1.0, 2.0] for one completion"),
        ("number", "returned 1.0 for one completion"),
        ("text", "no finite number"),
        ("infinite", "no finite number"),
    ],
)
def test_failures(file: str, name: str, words: str) -> None:
    task = task_of(file, "accuracy", name)
    verdict = task.verify(task.problem(ROW), "4")
    assert verdict.failed
    assert math.isnan(verdict.reward)
    assert words in verdict.reason


def test_rows(file: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(ROW | {"prompt": f"{i}+{i}?"}) for i in range(5)))
    train, test, facts = task_of(file, "accuracy").load(str(path), test_size=2)
    assert (len(train), len(test), facts["dropped"]) == (3, 2, 0)


def test_bad_input(file: str, tmp_path: Path) -> None:
    for make, words in (
        (lambda: load_task("rewards"), "needs data.rewards"),
        (lambda: load_task("rewards", rewards=["accuracy"]), "expected file and function"),
        (lambda: task_of(file, "nothing"), "has no function nothing"),
        (lambda: load_task("rewards", rewards=[f"{tmp_path}/no.py:f"]), "There is no file"),
        (lambda: task_of(file, "accuracy", reward_weights=[1.0, 2.0]), "2 numbers for 1 different functions"),
        (
            lambda: task_of(file, "wants_ids").problem(ROW),
            "needs completion_ids, but the rows have prompt, solution, level",
        ),
        (lambda: task_of(file, "accuracy").problem({"prompt": "x"}), "needs solution"),
        (lambda: task_of(file, "brevity").problem({"prompt": 3}), "A prompt is 3"),
        (lambda: task_of(file, "brevity").load("generate", test_size=1, seed=1), "needs rows"),
    ):
        with pytest.raises(UserError, match=words):
            make()


def test_a_function_that_trl_takes(file: str) -> None:
    """The same function gives TRL's trainer the same values: its call, spelled out."""
    namespace: dict[str, object] = {}
    exec(FUNCTIONS, namespace)
    accuracy = namespace["accuracy"]
    batch = accuracy(prompts=["a", "b"], completions=["4", "5"], solution=["4", "4"], level=[1, 1])
    task = task_of(file, "accuracy")
    problem = task.problem(ROW)
    assert batch == [task.verify(problem, text).reward for text in ("4", "5")]
