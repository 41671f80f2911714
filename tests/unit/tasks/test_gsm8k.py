"""GSM8K: the cases G of users, both rules, real solutions with their labels, and any text at all."""

from __future__ import annotations

import gzip
import json
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from helpers.runs import run_config
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.errors import UserError
from grpo_zero.tasks import load_task
from grpo_zero.tasks.gsm8k import GSM8KTask, gold_answer
from grpo_zero.train.run import train
from grpo_zero.types import Problem, Verdict

TASK = GSM8KTask()
ROW = {"question": "How many <<1+1=2>>2 eggs?", "answer": "She has 40 + 2 = <<40+2=42>>42.\n#### 42"}


def judged(text: str, gold: str = "42", finished: bool = True, **options: str) -> Verdict:
    task = GSM8KTask(**options)
    return task.verify(task.problem({"question": "q", "answer": f"#### {gold}"}), text, finished)


def rules(text: str, gold: str = "42", finished: bool = True) -> tuple[bool, bool]:
    """Right by the strict and by the lenient rule."""
    notes = judged(text, gold, finished).notes
    return bool(notes["strict"]), bool(notes["lenient"])


BOTH, LENIENT, NEITHER = (True, True), (False, True), (False, False)
CASES = {
    "G01 long tail": ("2+40=42\n#### 42\n" + "so it is. " * 48, "42", BOTH),
    "G02 minus": ("#### -3", "-3", BOTH),
    "G02 minus lost": ("#### 3", "-3", NEITHER),
    "G02 minus sign": ("#### −3", "-3", BOTH),
    "G02 minus and currency": ("so -$3", "-3", LENIENT),
    "G02 currency and minus": ("so $-3", "-3", LENIENT),
    "G02 minus of a LaTeX fraction": (r"#### -\frac{84}{2}", "-42", BOTH),
    "G02 minus of a LaTeX fraction lost": (r"#### -\frac{84}{2}", "42", NEITHER),
    "G02 minus before the dollar of a LaTeX fraction": (r"so $-\frac{84}{2}$, or -$\frac{84}{2}$", "-42", LENIENT),
    "G03 lone comma": ("The answer is 72, in total, so that is it.", "72", LENIENT),
    "G05 comma in the answer": ("#### 1,000", "1000", BOTH),
    "G05 comma in the gold": ("#### 1000", "1,000", BOTH),
    "G05 LaTeX comma": ("It is 1{,}000.", "1000", LENIENT),
    "G07 currency": ("#### $29.00", "29", BOTH),
    "G07 sentence dot": ("She makes $18.", "18", LENIENT),
    "G09 subtraction": ("10-4 apples", "4", LENIENT),
    "G09 spaced subtraction": ("10 - 4 apples", "4", LENIENT),
    "G09 range": ("pages 5-10", "10", LENIENT),
    "G11 boxed": (r"so \boxed{42}", "42", LENIENT),
    "G11 boxed with words": (r"so \boxed{42 \text{ dollars}} after 3 days", "42", LENIENT),
    "G11 nested braces": (r"\boxed{{\bf 42}} and 7", "42", LENIENT),
    "G11 last box": (r"\boxed{41} no, \boxed{42}", "42", LENIENT),
    "G11 open box": (r"\boxed{41", "42", NEITHER),
    "G14 gold merely occurs": (" ".join(map(str, range(1, 101))), "37", NEITHER),
    "G21 ten is not one": ("#### 10", "1", NEITHER),
    "G21 scientific": ("#### 1e-1", "1", NEITHER),
    "G21 a power": ("so 2^3", "3", NEITHER),
    "G13 a mixed number is not read": ("#### 1 1/2", "1.5", NEITHER),
    "G24 percent": ("so 20%", "20", LENIENT),
    "G24 percent is no share": ("#### 20%", "0.2", NEITHER),
    "G25 no space": ("####42", "42", BOTH),
    "G25 currency": ("#### $42", "42", BOTH),
    "G25 bold": ("#### **42**", "42", BOTH),
    "G25 dot": ("#### 42.", "42", BOTH),
    "G25 boxed behind the mark": (r"#### \boxed{42}", "42", BOTH),
    "G28 nan": ("#### nan", "42", NEITHER),
    "G28 inf": ("#### inf", "42", NEITHER),
    "G28 huge": ("#### 1e400", "1", NEITHER),
    "G28 superscript": ("#### ²", "2", NEITHER),
    "G28 raised": ("#### 4²", "4", NEITHER),
    "last mark wins": ("#### 41\nno:\n#### 42", "42", BOTH),
    "mark wins over the box": ("\\boxed{42}\n#### 41", "42", NEITHER),
    "words behind the mark": ("#### The answer is 42", "42", LENIENT),
    "unit": ("#### 42 apples", "42", BOTH),
    "empty mark": ("42 #### ", "42", LENIENT),
    "nothing": ("", "42", NEITHER),
    "joined digits": ("x42", "42", NEITHER),
    "version": ("1.2.42", "42", NEITHER),
}


@pytest.mark.parametrize(("text", "gold", "expected"), CASES.values(), ids=CASES)
def test_cases(text: str, gold: str, expected: tuple[bool, bool]) -> None:
    assert rules(text, gold) == expected


@pytest.mark.parametrize(
    "text", ["1/2", ".5", "0.50", r"\frac12", r"\frac{1}{2}", r"\dfrac{1}{2}", r"$\frac{1}{2}$", "50/100"]
)
def test_fractions_and_decimals(text: str) -> None:
    """G13."""
    assert rules(f"#### {text}", "0.5") == BOTH
    assert rules(f"so {text}", "0.5") == LENIENT


def test_a_number_cut_by_the_limit_is_not_paid() -> None:
    """G22: the full answer would have been 12."""
    assert rules("#### 1", "1", finished=False) == NEITHER
    assert rules("#### 1", "1") == BOTH
    assert rules("#### 1\nso", "1", finished=False) == BOTH
    assert rules("#### $1.", "1", finished=False) == NEITHER
    assert rules("it is 1", "1", finished=False) == NEITHER
    assert rules("it is 1 egg", "1", finished=False) == LENIENT


def test_the_rule_that_trains_is_paid_and_both_are_reported() -> None:
    strict, lenient = (judged("so 42", answer_rule=rule) for rule in ("strict", "lenient"))
    assert (strict.reward, strict.correct) == (0.0, False)
    assert (lenient.reward, lenient.correct) == (1.0, True)
    assert strict.notes == lenient.notes == {"strict": 0.0, "lenient": 1.0}
    assert judged("#### 42").reward == pytest.approx(1.1)
    assert judged("#### 41").parts == {"format": 0.1, "answer": 0.0}
    assert judged("#### 42\n#### 42").parts == {"format": 0.0, "answer": 1.0}
    assert judged("so it is\n#### 41").reason == "41, not 42"
    assert judged("so it is").reason == "no answer"


def test_every_label_of_real_solutions_is_reproduced(shared_data: Path) -> None:
    """Four models' solutions to the 1,319 test questions; they end with ``A: 18``."""
    task = GSM8KTask(answer_mark="A:")
    lines = (shared_data / "gsm8k" / "example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines()
    num_labels = 0
    for row in map(json.loads, lines):
        gold = row["ground_truth"].rpartition("A:")[2]
        problem = task.problem({"question": row["question"], "answer": f"#### {gold.strip()}"})
        for name, solution in row.items():
            if name not in ("question", "ground_truth"):
                assert task.verify(problem, solution["solution"]).correct == solution["is_correct"], solution
                num_labels += 1
    assert num_labels == 5276


def test_every_reference_solution_is_right(shared_data: Path) -> None:
    """G27: a right answer in the documented form scores, for every row; no calculator mark reaches the prompt."""
    train, test, facts = TASK.load(str(shared_data / "gsm8k"), test_size=1319)
    assert facts == {"train": 7473, "test": 1319, "dropped": 0}
    for row in train + test:
        problem = TASK.problem(row)
        verdict = TASK.verify(problem, row["answer"])
        assert (verdict.reward, verdict.correct) == (1.1, True)
        assert problem.row["gold"].denominator == 1
        assert "<<" not in problem.messages[-1]["content"]


def test_real_outputs_parse_without_surprise(shared_data: Path) -> None:
    """LLaDA-8B was asked for a box: lenient finds most of the right ones, strict none."""
    path = shared_data / "rollouts" / "gsm8k_llada8b_256_128.jsonl.gz"
    found = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            gold = 0 if row["ground_truth"] is None else int(row["ground_truth"])
            verdict = judged(row["completion"], str(gold))
            found.append((verdict.notes["strict"], verdict.notes["lenient"]))
    assert len(found) == 1130
    strict, lenient = (sum(column) / len(found) for column in zip(*found, strict=True))
    assert strict < 0.01
    assert 0.6 < lenient < 0.9


@pytest.mark.parametrize("answer", ["n/a", "#### n/a", "18", "#### 1 or 2", "#### ", None, 18])
def test_a_gold_that_cannot_be_read_is_refused(answer: object) -> None:
    """G16: never a question that pays everything."""
    with pytest.raises(UserError, match="has to end with ####"):
        TASK.problem({"question": "q", "answer": answer})


def test_gold() -> None:
    assert gold_answer("<<2*500=1000>>1000\n#### 1,000") == 1000
    assert gold_answer("#### -7") == -7
    assert gold_answer("#### 0.5") == Fraction(1, 2)


@pytest.mark.parametrize(
    ("answer", "name"),
    [("40+2=<<40+2=42>>42.\n#### 42", "1 step"), ("a\n\nb\nc\n#### 42", "3 steps"), ("#### 42", "0 steps")],
)
def test_difficulty_is_the_lines_of_the_solution(answer: str, name: str) -> None:
    assert TASK.problem({"question": "q", "answer": answer}).difficulty == name


def test_a_worker_thread_gives_the_same_verdict() -> None:
    """G19."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(judged, "#### 42").result() == judged("#### 42")


TRICKY = st.text(alphabet=st.sampled_from("0123456789.,-$%#*/\\{}boxedfracA:eE ^²−\n\t( )"), max_size=200)


@given(st.one_of(st.text(max_size=300), TRICKY))
def test_any_text_is_judged(text: str) -> None:
    verdict = judged(text)
    assert verdict.reward in (0.0, 0.1, 1.0, 1.1)
    assert verdict.reward == sum(verdict.parts.values())


@pytest.mark.parametrize(
    "unit",
    ["1", "1,", "-", "$", "####", "#### ", "\\boxed{", "{", "}", "\\frac1", "1/", ".", "1e", "**", "1^", " ", "1 "],
)
def test_long_texts_take_no_longer_than_they_are_long(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    problem = TASK.problem(ROW)
    assert min(_seconds(problem, text + end) for end in ("", "#### 42", "x")) < 0.5


def _seconds(problem: Problem, text: str) -> float:
    start = time.perf_counter()
    TASK.verify(problem, text)
    return time.perf_counter() - start


def test_wording() -> None:
    messages = load_task("gsm8k", prompt="Say: {question}", system_prompt="S").problem(ROW).messages
    assert [message["content"] for message in messages] == ["S", "Say: How many 2 eggs?"]
    for options, words in (
        ({"prompt": "Solve."}, "lacks the placeholder {question}"),
        ({"answer_rule": "lenien"}, "strict or lenient"),
        ({"answer_mark": " "}, "answer mark is ' '"),
        ({"numbers": 3}, "no option 'numbers'"),
    ):
        with pytest.raises(UserError, match=words):
            load_task("gsm8k", **options)


def test_a_run_reports_both_rules(model_folder: Path, tmp_path: Path) -> None:
    """R09, G11: in training and in evaluation, beside the reward, so that a gain in form can be told from one in answers."""
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(ROW | {"question": f"{i} 1?"}) for i in range(10)))
    more = ["data.task=gsm8k", f"data.path={tmp_path}/rows.jsonl", "data.prompt={question}", "training.max_steps=1"]
    train(run_config(model_folder, tmp_path / "runs", *more, "data.system_prompt=null"))
    found = {
        name for line in next(tmp_path.rglob("metrics.jsonl")).read_text().splitlines() for name in json.loads(line)
    }
    names = {"note/strict", "note/lenient", "reward/answer", "reward/format"}
    assert names | {f"eval/{name}" for name in names} <= found
