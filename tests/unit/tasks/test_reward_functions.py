"""Reward functions written for TRL, as they are: arguments by name, None, weights, and what can be wrong."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import pytest
from helpers.runs import run_config

from grpo_zero.errors import UserError
from grpo_zero.tasks import load_task
from grpo_zero.tasks.judging import judge_groups
from grpo_zero.tasks.reward_functions import RewardFunctionsTask
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.train.run import train

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
        ("wrong_count", "wrong_count returned 2 values for 1 completion"),
        ("number", "number returned 1.0 for 1 completion"),
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
            "needs completion_ids, but the rows have prompt, solution, level: .* A task has no token ids, only text",
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


GROUP_FUNCTIONS = """
def shortest(prompts, completions, solution):
    assert len(prompts) == len(completions) == len(solution)
    least = min(map(len, completions))
    return [float(len(text) == least) for text in completions]

def picky(completions, **kwargs):
    return [None if text == "?" else float("inf") if text == "x" else 0.5 for text in completions]

def one_for_all(completions, **kwargs):
    return [1.0]

def raises(completions, **kwargs):
    if "x" in completions:
        raise ValueError("x")
    return [1.0] * len(completions)
"""
ANSWERS = [("4", True), ("four", True), ("?", False), ("x", True)]


def group_task(tmp_path: Path, *names: str) -> RewardFunctionsTask:
    (tmp_path / "group_rewards.py").write_text(GROUP_FUNCTIONS)
    return task_of(str(tmp_path / "group_rewards.py"), *names, reward_batch="group")


def test_a_group_is_one_batch(tmp_path: Path) -> None:
    """The function compares the answers to a question; groups are apart."""
    task = group_task(tmp_path, "shortest")
    problem = task.problem(ROW)
    found = judge_groups(task, [(problem, ANSWERS[:2]), (problem, ANSWERS[1:2])])
    assert [[verdict.reward for verdict in group] for group in found] == [[1.0, 0.0], [1.0]]
    one_by_one = task_of(str(tmp_path / "group_rewards.py"), "shortest")
    assert [verdict.reward for verdict in judge_groups(one_by_one, [(problem, ANSWERS)])[0]] == [1.0] * 4


def test_failures_in_a_group(tmp_path: Path) -> None:
    """A bad value costs its own answer; R01: another number of values is an error that names function and both counts."""
    problem = group_task(tmp_path, "picky").problem(ROW)
    (verdicts,) = judge_groups(group_task(tmp_path, "picky", "shortest"), [(problem, ANSWERS)])
    assert [verdict.failed for verdict in verdicts] == [False, False, False, True]
    assert [verdict.reward for verdict in verdicts[:3]] == [1.5, 0.5, 1.0]
    (verdicts,) = judge_groups(group_task(tmp_path, "one_for_all"), [(problem, ANSWERS)])
    assert all(verdict.failed and math.isnan(verdict.reward) for verdict in verdicts)
    assert verdicts[0].reason.endswith("one_for_all returned 1 values for 4 completions, not one each")
    found = judge_groups(group_task(tmp_path, "raises"), [(problem, ANSWERS), (problem, ANSWERS[:2])])
    assert [[verdict.failed for verdict in group] for group in found] == [[True] * 4, [False] * 2]


def test_groups_in_processes_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "group_rewards.py"
    path.write_text(GROUP_FUNCTIONS + "def hangs(completions, **kwargs):\n    import time\n    time.sleep(60)\n")
    for name, reason in (("shortest", "right"), ("hangs", "verify_group took longer than 1 s")):
        make = partial(load_task, "rewards", rewards=[f"{path}:{name}"], reward_batch="group")
        task = IsolatedTask(make(), make, timeout_s=0.5 if name == "hangs" else 20.0, num_workers=1)
        (verdicts,) = judge_groups(task, [(task.problem(ROW), ANSWERS[:2])])
        task.close()
        assert verdicts[0].reason == reason
        assert [verdict.failed for verdict in verdicts] == [name == "hangs"] * 2


def test_a_run_hands_over_whole_groups(model_folder: Path, tmp_path: Path) -> None:
    """Through the training loop: the function sees the group's size in training, and the samples' in evaluation."""
    (tmp_path / "sizes.py").write_text(
        "def size(completions, **kwargs):\n    return [float(len(completions))] * len(completions)"
    )
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"prompt": f"{i} {i}"}) for i in range(10)))
    more = ["data.task=rewards", f"data.path={tmp_path}/rows.jsonl", f"data.rewards=[{tmp_path}/sizes.py:size]"]
    more += ["data.reward_batch=group", "data.prompt=null", "data.system_prompt=null", "training.max_steps=1"]
    train(run_config(model_folder, tmp_path / "runs", *more, "evaluation.samples_per_problem=3"))
    lines = next(tmp_path.rglob("samples.jsonl")).read_text().splitlines()
    sizes = {sample["kind"]: sample["parts"]["size"] for sample in map(json.loads, lines)}
    assert sizes == {"train": 4.0, "eval": 3.0}
