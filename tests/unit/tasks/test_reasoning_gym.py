"""reasoning-gym: every data set asks and judges, nothing that a model writes is run, and flaws of its scorers are not paid.

Needs the optional package; .ci/run installs it.
"""

from __future__ import annotations

import importlib.util
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grpo_zero.cli import main
from grpo_zero.commands import check_task
from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.tasks import load_task
from grpo_zero.tasks.reasoning_gym_checks import EVALUATED, PARSED, is_harmless
from grpo_zero.tasks.reasoning_gym_task import WITHOUT_GOLD, ReasoningGymTask, dataset_names
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.train.problems import make_task

if importlib.util.find_spec("reasoning_gym") is None:
    pytest.skip("the package reasoning-gym is not installed", allow_module_level=True)

# One of its dependencies leaves a file open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

GENERATOR = {"train_size": 2, "seed": 1337}
HOSTILE = (
    *(
        "",
        "x",
        "[[",
        "((((" * 500,
        "-1",
        "{}",
        "[]",
        "nan",
        "nan + nani",
        "inf",
        "-inf",
        "1e400",
        "²",
        "\x00",
        "7" * 5000,
    ),
    *("9**9**9**9", "[1, 2", "{'a': 1}", "a,b\nc", "None", "maybe", "<answer>", "\ud800", "ß" * 300, "9999999!", "1/0"),
    *("__import__('os').getcwd()", "().__class__.__base__.__subclasses__()", "[open('OWNED', 'w')]", "exit()", "open"),
    *(
        "(exit)()",
        "ｅxit()",
        "print(1)",
        "lambda: 1",
        "x.__class__",
        "Symbol('x').func",
        "2(3)",
        "1_2",
        "0x10",
        "True and False",
    ),
)


def loaded(name: str, **options: object) -> tuple[ReasoningGymTask, list[dict], list[dict]]:
    task = ReasoningGymTask(name, **options)
    train, test, _ = task.load("generate", test_size=2, **GENERATOR)
    return task, train, test


def judged(task: ReasoningGymTask, row: dict, answer: str) -> float:
    return task.verify(task.problem(row), f"so</think><answer>{answer}</answer>").reward


@pytest.mark.parametrize("name", dataset_names())
def test_every_data_set(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G27: its own answer in the documented form scores in full. C28, G28: other texts raise and run nothing, unpaid."""
    monkeypatch.chdir(tmp_path)
    task, train, test = loaded(name)
    for row in train + test:
        problem = task.problem(row)
        assert row["question"] in problem.messages[-1]["content"]
        assert pickle.loads(pickle.dumps(problem)) == problem, "it can be sent to a process"
        assert not task.verify(problem, problem.messages[-1]["content"]).correct, "the prompt holds no answer"
        if name in WITHOUT_GOLD:
            assert task.example is None
            assert row["answer"] is None
        elif "Integral(" in row["answer"]:
            assert name == "intermediate_integration"
            assert not task.verify(problem, task.example(row)).correct, "the question in other words"
        else:
            verdict = task.verify(problem, task.example(row))
            assert (verdict.reward, verdict.correct) == (1.0, True), (row["answer"], verdict)
    gold = str(train[0]["answer"])
    for text in HOSTILE:
        verdict = task.verify(task.problem(train[0]), f"<answer>{text}</answer>")
        assert 0 <= verdict.reward <= 1
        assert not verdict.failed
        assert not verdict.correct or text.strip() == gold, (text, gold)
    assert not list(tmp_path.iterdir())


def test_rows_differ_between_training_and_held_out() -> None:
    task = ReasoningGymTask("coin_flip")
    train, test, facts = task.load("generate", test_size=20, train_size=200, seed=1)
    assert facts["dropped"] == 200 - facts["train"] > 0, "the space of questions is small"
    assert not {row["question"] for row in train} & {row["question"] for row in test}
    again = task.load("generate", test_size=20, train_size=100, seed=1)
    assert (again[0], again[1]) == (train[: len(again[0])], test), "more rows leave the first ones as they are"


def test_the_answer_is_the_last_block_after_the_reasoning() -> None:
    task, (row, *_), _ = loaded("chain_sum")
    problem, gold = task.problem(row), row["answer"]
    for text, reward in (
        (f"<answer>0</answer></think>\n<answer> {gold}\n</answer>", 1.0),
        (f"</think><answer>x</answer><answer>{gold}</answer>", 1.0),
        (f"<answer>{gold}</answer></think>", 0.0),
        (f"</think><answer>{gold}</answer><answer>x</answer>", 0.0),
        (f"</think><answer>{gold}", 0.0),
        (gold, 0.0),
        (f"</think><answer>{gold} it is</answer>", pytest.approx(len(gold) / (len(gold) + 6))),
    ):
        verdict = task.verify(problem, text)
        assert verdict.reward == reward, text
        assert verdict.correct == (reward == 1.0), "a share of the score is paid, and no success"
    assert task.verify(problem, f"x</think><answer>{gold}</answer>").notes == {"form": 1.0}
    assert task.verify(problem, gold, finished=False).reason == "cut off before an answer block"


def test_flaws_of_scorers_are_not_paid() -> None:
    task = ReasoningGymTask("puzzle24")
    row = {"question": "q", "answer": "6*(1 + 6 - 3)", "metadata": {"numbers": [6, 1, 6, 3]}}
    assert judged(task, row, "6*(1+6-3)") == 1.0
    assert judged(task, row, "3*7 - 1 + 4") == 0.0, "24 of other numbers"
    task = ReasoningGymTask("coin_flip")
    row = {"question": "q", "answer": "0.6875", "metadata": {}}
    assert [judged(task, row, text) for text in ("0.6875", "11/16", "0", "0.6")] == [1.0, 1.0, 0.0, 0.0]
    task = ReasoningGymTask("game_of_life_halting")
    row = {"question": "q", "answer": "True", "metadata": {}}
    assert [judged(task, row, text) for text in ("True", "False", "x")] == [1.0, 0.0, 0.0]
    task = ReasoningGymTask("complex_arithmetic")
    row = {"question": "q", "answer": "4.0 - 7.0i", "metadata": {"result": (4.0, -7.0)}}
    assert [judged(task, row, text) for text in ("4.0 - 7.0i", "nan")] == [1.0, 0.0]


@pytest.mark.parametrize("name", sorted(PARSED))
def test_formulas_reach_sympy(name: str) -> None:
    """What is kept from the scorer is nothing that it needs: all its own answers are harmless."""
    task = ReasoningGymTask(name)
    train, *_ = task.load("generate", test_size=0, train_size=30, seed=3)
    assert all(is_harmless(name, row["answer"]) or "Integral(" in row["answer"] for row in train)
    for text in (
        "open('x')",
        "exit()",
        "(exit)()",
        "x.func",
        "a__b",
        "2**3**4",
        "2**(3**4)",
        "(2**3)**4",
        "x**9999",
        "5!",
    ):
        assert not is_harmless(name, text), text
    for text in ("x**2*y**3 + x", "(1 + 2)*3", "sin(x)**2/2 + C", "exp(-2*x)"):
        assert is_harmless(name, text), text


@pytest.mark.parametrize("name", sorted(EVALUATED))
def test_lists_reach_eval(name: str) -> None:
    for text in ("[[0, 1], [-1, 0]]", "['A', 'B']", "ABC", "1 2 3", "_ _ Q _\n_ Q _ _"):
        assert is_harmless(name, text), text
    for text in (
        "print(1)",
        "[print(1)]",
        "x.y",
        "[x for x in y]",
        "lambda: 1",
        "9**9**9",
        "f'{print(1)}'",
        "(" * 5000,
    ):
        assert not is_harmless(name, text) or "(" * 5000 in text, text


def test_a_list_is_scored_as_the_scorer_says() -> None:
    task = ReasoningGymTask("spiral_matrix")
    row = {"question": "q", "answer": "1 2 3", "metadata": {}}
    assert [judged(task, row, text) for text in ("1 2 3", "[1, 2, 3]", "(print(1),)")] == [1.0, 0.1, 0.0]


def test_parameters() -> None:
    task, train, _ = loaded("chain_sum", parameters=["min_terms=5", "max_terms= 5", "allow_negation=true"])
    assert all(row["metadata"]["num_terms"] == 5 for row in train)
    assert task.parameters["allow_negation"] is True


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("reasoning_gym:chan_sum", {}, "no data set 'chan_sum'.*Did you mean 'chain_sum'"),
        ("reasoning_gym", {}, "data.task=reasoning_gym:NAME. There are ab, acre, "),
        ("reasoning_gym:composite", {}, "no data set 'composite'"),
        ("reasoning_gym:chain_sum", {"parameters": ["min_term=2"]}, "'min_term=2'.*Did you mean 'min_terms'"),
        ("reasoning_gym:chain_sum", {"parameters": ["seed=2"]}, "'seed=2', but chain_sum has"),
        ("reasoning_gym:chain_sum", {"parameters": ["min_terms"]}, "each given as name=value"),
        ("reasoning_gym:chain_sum", {"parameters": ["min_terms=[2"]}, "not valid YAML"),
        (
            "reasoning_gym:chain_sum",
            {"parameters": ["min_terms=9"]},
            "does not take data.parameters as they are: Assert",
        ),
        ("reasoning_gym:chain_sum", {"prompt": "Solve."}, "lacks the placeholder"),
        ("countdown:chain_sum", {}, "Task countdown:chain_sum has a colon"),
    ],
)
def test_bad_names_and_parameters(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_task(name, **options)


def test_bad_sizes() -> None:
    with pytest.raises(UserError, match=r"set data\.path=generate"):
        ReasoningGymTask("chain_sum").load("rows.jsonl", test_size=1)
    few = ReasoningGymTask("coin_flip", ["min_trials=3", "max_trials=3"])
    with pytest.raises(UserError, match="asks nothing beside the 100 held-out"):
        few.load("generate", test_size=100, train_size=5, seed=1)


def test_it_is_judged_in_processes_of_its_own_unless_told_otherwise() -> None:
    settings = ["data.task=reasoning_gym:chain_sum", "data.path=generate", "data.parameters=[max_terms=3]"]
    task = make_task(load_config(None, settings))
    assert isinstance(task, IsolatedTask)
    assert task.timeout_s == 5.0
    row = {"question": "1 + 2 =", "answer": "3", "metadata": {}}
    verdicts = task.verify_groups([(task.problem(row), [("<answer>3</answer>", True), ("3", False)])])
    task.close()
    assert [verdict.correct for verdict in verdicts[0]] == [True, False]


def test_a_worker_thread_gives_the_same_verdict() -> None:
    """G19."""
    task, (row, *_), _ = loaded("simple_integration")
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(task.verify, task.problem(row), task.example(row)).result()
    assert verdict == task.verify(task.problem(row), task.example(row))
    assert verdict.correct


@pytest.mark.parametrize("name", ["leg_counting", "rush_hour"])
def test_check_task(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_task, "SLOW_S", 5.0)  # of a machine that others use too
    settings = ["data.path=generate", "data.train_size=40", "data.test_size=2"]
    assert main(["check-task", "--task", f"reasoning_gym:{name}", *settings]) == 0
    assert "nothing wrong was found" in capsys.readouterr().out


@pytest.mark.usefixtures("digits_task")
def test_a_run(model_folder: Path, tmp_path: Path) -> None:
    """Two steps and an evaluation; the score and the form are in the record."""
    from helpers.runs import run_config

    from grpo_zero.train.run import train

    more = ["data.task=reasoning_gym:chain_sum", "data.prompt={question}", "data.parameters=[min_terms=2, max_terms=2]"]
    train(run_config(model_folder, tmp_path, *more, "training.max_prompt_len=400", "training.max_steps=2"))
    records = [json.loads(line) for line in next(tmp_path.rglob("metrics.jsonl")).read_text().splitlines()]
    assert any("reward/score" in record and "note/form" in record for record in records)
