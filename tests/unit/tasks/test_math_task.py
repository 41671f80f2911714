"""Boxed answers: what equals what, the cases G of users, golds that are refused, and any text at all."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.cli import main
from grpo_zero.commands import check_task
from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.tasks import load_task
from grpo_zero.tasks.math_task import MathTask, equals
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.train.problems import make_task
from grpo_zero.types import Verdict

pytest.importorskip("math_verify")
TASK = MathTask()


def judged(text: str, gold: str, finished: bool = True) -> Verdict:
    return TASK.verify(TASK.problem({"problem": "q", "answer": gold}), text, finished)


def boxed(text: str) -> str:
    return f"so \\boxed{{{text}}}."


EQUAL = [
    (r"\frac{1}{2}", r"\frac12"),
    (r"\frac{1}{2}", "0.5"),
    ("0.5", r"\dfrac{1}{2}"),
    ("1000", "1,000"),
    (r"5\text{ cm}", "5"),
    ("5", r"5 \text{ cm}"),
    ("90", r"90^\circ"),
    (r"\$18", "18"),
    (r"2\sqrt{2}", r"\sqrt{8}"),
    ("(x+1)^2", "x^2+2x+1"),
    (r"(-\infty, 2]", r"(-\infty,2]"),
    (r"[0,1)\cup(2,3)", r"[0, 1) \cup (2, 3)"),
    (r"\{1,2\}", "2, 1"),
    ("(3,4)", "(3, 4)"),
    ("x=5", "5"),
    ("5", "x=5"),
    (r"\text{Monday}", "Monday"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    ("2^{10}", "1024"),
    ("-3", "-3"),
]
UNEQUAL = [
    (r"\frac{1}{3}", "0.33"),
    ("[0,1)", "[0,1]"),
    ("(3,4)", "(4,3)"),
    ("3", "3, 4"),
    ("3, 4", "3"),
    ("3", r"3 \text{ or } 4"),
    (r"\text{east}", "seat"),
    ("-3", "3"),
    ("1", "10"),
    ("2", "nan"),
    ("2", r"\infty"),
    ("2", "²"),
    ("2", "1e400"),
    ("2", ""),
    ("2", r"\frac{2}{0}"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal(gold: str, answer: str) -> None:
    assert judged(boxed(answer), gold).reward == 1.0


@pytest.mark.parametrize(("gold", "answer"), UNEQUAL)
def test_unequal(gold: str, answer: str) -> None:
    verdict = judged(boxed(answer), gold)
    assert (verdict.reward, verdict.correct, verdict.failed) == (0.0, False, False)


def test_the_gold_comes_first() -> None:
    """G17: the checker takes an interval for inequalities, not inequalities for an interval."""
    assert equals("1<x<2", "(1,2)")
    assert not equals("(1,2)", "1<x<2")
    assert judged(boxed("(1,2)"), "1<x<2").correct
    assert not judged(boxed("1<x<2"), "(1,2)").correct


def test_which_text_is_the_answer() -> None:
    for text, is_right in (
        (r"\boxed{41}, no: \boxed{42}", True),
        (r"\boxed{42}, no: \boxed{41}", False),
        (r"\boxed{42}</think> so it is", False),
        (r"\boxed{41}</think> so \boxed{42}", True),
        (r"\boxed{{\bf 42}}", True),
        (r"\boxed {42}", True),
        (r"\boxed{41} or \boxed{42", False),
        ("42", False),
        ("the answer is $42$", False),
    ):
        assert judged(text, "42").correct == is_right, text
    assert judged(r"\boxed{4", "4", finished=False).reason == "cut off before a boxed answer"
    assert judged(r"so \boxed{4}", "4", finished=False).correct, "the box is closed, so nothing is missing"
    assert "600 characters" in judged(boxed("7" * 600), "7").reason


GOLDS = ["n/a", "N/A", "", " ", "?", "nan", "None", "inf", r"\frac{1}{", "²", "9" * 600, "so 1\n2"]


@pytest.mark.parametrize("gold", [*GOLDS, None, [1], True])
def test_a_gold_that_cannot_be_read_is_refused(gold: object) -> None:
    """G16: the row is named, and no response is paid."""
    with pytest.raises(UserError, match=r"The answer of 'How many\?' is .* cannot be read"):
        TASK.problem({"problem": "How many?", "answer": gold})


def test_rows() -> None:
    problem = TASK.problem({"question": "1+1?", "solution": r"We get \boxed{1}, no, \boxed{2}."})
    assert problem.row["gold"] == "2"
    assert TASK.problem({"problem": "q", "answer": 2}).row["gold"] == "2"
    assert TASK.problem({"problem": "q", "answer": r"so \boxed{7}"}).row["gold"] == "7"
    assert TASK.problem({"problem": "q", "answer": "3", "solution": r"\boxed{4}"}).row["gold"] == "3"
    for row, words in (
        ({"answer": "2"}, "needs a question in one of problem, question, prompt"),
        ({"problem": "q", "solution": "so 2"}, "is None, which cannot be read"),
        ({"problem": "q"}, "is None, which cannot be read"),
    ):
        with pytest.raises(UserError, match=words):
            TASK.problem(row)


def test_load(tmp_path: Path) -> None:
    rows = [{"problem": f"{i}+{i}?", "answer": str(2 * i)} for i in range(5)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [*rows, {"question": " 0+0? ", "solution": r"\boxed{0}"}])))
    train, test, facts = TASK.load(str(path), test_size=2)
    assert [row["answer"] for row in train] == ["2", "4", "6"], "0+0 is held out under another column"
    assert (len(test), facts["dropped"]) == (2, 1)
    with pytest.raises(UserError, match="has no generator"):
        TASK.load("generate", test_size=1, seed=1)


def test_real_golds_score(shared_data: Path) -> None:
    """G27: GSM8K's golds in a box."""
    lines = (shared_data / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()[:200]
    for row in map(json.loads, lines):
        row["answer"] = row["answer"].rpartition("#### ")[2]
        assert TASK.verify(TASK.problem(row), TASK.example(row)).reward == 1.0


def test_a_worker_thread_gives_the_same_verdict() -> None:
    """G19: the checker's alarm would fail there, and everything score 0."""
    with ThreadPoolExecutor(1) as pool:
        for answer in (r"\frac{2}{4}", "7", "(("):
            verdict = pool.submit(judged, boxed(answer), "0.5").result()
            assert verdict == judged(boxed(answer), "0.5")
    assert judged(boxed(r"\frac{2}{4}"), "0.5").correct


def test_what_takes_for_ever_costs_one_answer() -> None:
    """In processes of its own, unless told otherwise; C08."""
    task = make_task(load_config(None, ["data.task=math"]))
    assert isinstance(task, IsolatedTask)
    assert task.timeout_s == 5.0
    task.timeout_s = 1.0
    problem = task.problem({"problem": "q", "answer": "2"})
    bomb = boxed("9^{9^{9^{9}}} + 7^{7^{7^{7}}}")
    verdicts = task.verify_all([(problem, boxed("2"), True), (problem, bomb, True), (problem, boxed("2"), True)])
    task.close()
    assert [verdict.correct for verdict in verdicts] == [True, False, True]


LATEX = st.text(alphabet=st.sampled_from(r"0123456789.,-$%\{}()[]<>=+*/_^ xyfracsqtboedinm&|"), max_size=40)


@settings(max_examples=60, deadline=None)
@given(LATEX.filter(lambda text: "^" not in text and "!" not in text))
def test_any_text_is_judged(text: str) -> None:
    verdict = judged(boxed(text), "42")
    assert verdict.reward in (0.0, 1.0) or verdict.failed


@pytest.mark.parametrize(
    "text", ["", "\\boxed", "\\boxed{", "\\boxed{}", "\\boxed{\x00}", "\\boxed{" * 5000, "\\boxed{\ud800}"]
)
def test_odd_texts(text: str) -> None:
    verdict = judged(text, "42")
    assert (verdict.reward, verdict.failed) == (0.0, False)


def test_wording_and_check_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_task, "SLOW_S", 5.0)  # of a machine that others use too
    with pytest.raises(UserError, match="lacks the placeholder"):
        load_task("math", prompt="Solve.")
    messages = (
        load_task("math", prompt="Say {question}", system_prompt="S").problem({"problem": "q", "answer": "1"}).messages
    )
    assert [message["content"] for message in messages] == ["S", "Say q"]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"problem": f"{i}?", "answer": f"\\frac{{{i}}}{{7}}"}) for i in range(5)))
    assert main(["check-task", "--task", "math", f"data.path={path}", "data.test_size=2"]) == 0
    assert "nothing wrong was found on 3 rows" in capsys.readouterr().out


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from grpo_zero.tasks import math_task, reasoning_gym_task

    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    for module, make, package in (
        (math_task, MathTask, "math-verify"),
        (reasoning_gym_task, lambda: load_task("reasoning_gym:chain_sum"), "reasoning-gym"),
    ):
        module._library.cache_clear()
        with pytest.raises(UserError, match=f"run `pip install {package}`"):
            make()
        module._library.cache_clear()
