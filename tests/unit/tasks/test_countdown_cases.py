"""The Countdown verifier, case by case: C01 to C35, F10, R08 and G19."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown import DEFAULT_PROMPT, CountdownTask
from grpo_zero.types import Problem, Verdict

TASK = CountdownTask()
RIGHT, WRONG = True, False
DEEP = "(" * 20_000


def problem(nums: list[int], target: int) -> Problem:
    return TASK.problem({"nums": nums, "target": target}, check_solvable=False)


def judge(nums: list[int], target: int, answer: str) -> Verdict:
    return TASK.verify(problem(nums, target), f"well</think><answer>{answer}</answer>")


def case(name: str, nums: list[int], target: int, answer: str, right: bool, reason: str) -> Any:
    return pytest.param(nums, target, answer, right, reason, id=name)


@pytest.mark.parametrize(
    ("nums", "target", "answer", "right", "reason"),
    [
        case("C01", [1, 81, 1, 1], 81, "81*1", WRONG, "uses 1 once instead of 3 times"),
        case("C01-more", [3, 5], 11, "3+3+5", WRONG, "uses 3 twice instead of once"),
        case("C01-right", [1, 81, 1, 1], 81, "81*1*1*1", RIGHT, "right"),
        case("C03", [3, 5, 7], 26, "3*5+7+4", WRONG, "number 4 is not given"),
        case("C04", [3, 3, 8, 8], 24, "8/(3-8/3)", RIGHT, "right"),
        case("C06", [2, 3], 8, "2**3", WRONG, "operator '**' not allowed"),
        case("C08", [9, 9, 9, 9], 1, "9**9**9**9", WRONG, "operator '**' not allowed"),
        case("C10", [1, 2, 3], 6, "1+2+3=6", WRONG, "character '=' not allowed"),
        case("C10-chain", [1, 2, 3], 6, "1+2=3+3=6", WRONG, "character '=' not allowed"),
        case("C11", [1, 2, 3], 15, "12+3", WRONG, "number 12 is not given"),
        case("C11-split", [12, 3], 15, "1 2+3", WRONG, "no operator before '2'"),
        case("C13", [1, 2, 3], 15, "1_2+3", WRONG, "character '_' not allowed"),
        case("C14", [5, 3], 8, "05+3", WRONG, "number 05 has a leading zero"),
        case("C15", [2, 3, 4], 14, "2(3+4)", WRONG, "no operator before '('"),
        case("C16", [5, 3, 3], 1, "5/(3-3)", WRONG, "division by zero"),
        case("C18", [6, 4, 2, 1], 11, "6 × 4 ÷ 2 − 1", RIGHT, "right"),
        case("C18-dot", [6, 4], 24, "6·4", RIGHT, "right"),
        case("C20", [5, 8], 3, "-5+8", RIGHT, "right"),
        case("C20-double", [5, 8], 13, "8--5", RIGHT, "right"),
        case("C20-plus", [5, 8], 13, "+5+8", WRONG, "'+' where a number should be"),
        case("C21", [1, 2, 3], 9, "\n(1+2)*3\n", RIGHT, "right"),
        case("C21-inside", [1, 2, 3], 9, "(1+2)\n*3", RIGHT, "right"),
        case("C25", [1, 2, 3], 6, "<answer>1+2+3</answer>", RIGHT, "right"),
        case("C28-import", [1], 1, "__import__('os').getcwd()", WRONG, "character '_' not allowed"),
        case("C28-walk", [1], 1, "().__class__", WRONG, "character '.' not allowed"),
        case("C29", [1], 1, DEEP, WRONG, "longer than 1000 characters"),
        case("C29-within", [1], 1, "(" * 999, WRONG, "ends where a number should be"),
        case("C29-closed", [1], 1, f"{DEEP}1{')' * 20_000}", WRONG, "longer than 1000 characters"),
        case("C31-comma", [3, 4], 7, "3+4,", WRONG, "character ',' not allowed"),
        case("C31-science", [1, 2], 100, "1e2", WRONG, "character 'e' not allowed"),
        case("C31-words", [3, 4], 7, "3+4 is it", WRONG, "word 'is' not allowed"),
        case("C31-latex", [3, 4], 7, r"\boxed{3+4}", WRONG, "character '\\\\' not allowed"),
        case("C33-empty", [1, 2], 3, "", WRONG, "empty expression"),
        case("C33-space", [1, 2], 3, " \n ", WRONG, "empty expression"),
        case("C35", [1, 2, 3], 3, "1+2", WRONG, "leaves 3 unused"),
        case("bare-target", [1, 2], 3, "3", WRONG, "number 3 is not given"),
        case("wrong-value", [3, 4], 24, "3*4", WRONG, "equals 12, not 24"),
        case("wrong-fraction", [3, 4], 24, "3/4", WRONG, "equals 3/4, not 24"),
    ],
)
def test_answers(nums: list[int], target: int, answer: str, right: bool, reason: str) -> None:
    verdict = judge(nums, target, answer)
    assert (verdict.correct, verdict.reason) == (right, reason)
    assert verdict.parts["answer"] == (1.0 if right else 0.0)
    assert verdict.reward == sum(verdict.parts.values())


@pytest.mark.parametrize(
    ("blocks", "right"),
    [
        ("<answer>1+2</answer><answer>1+2+3</answer>", RIGHT),
        ("<answer>1+2+3</answer><answer>1+2</answer>", WRONG),
    ],
    ids=["wrong-then-right", "right-then-wrong"],
)
def test_C23_the_last_block_counts_and_two_lose_the_format(blocks: str, right: bool) -> None:
    verdict = TASK.verify(problem([1, 2, 3], 6), f"well</think>{blocks}")
    assert verdict.correct is right
    assert verdict.parts["format"] == 0.0


def test_C23_a_draft_inside_the_reasoning_does_not_count() -> None:
    verdict = TASK.verify(problem([1, 2, 3], 6), "<answer>1+2+3</answer></think><answer>1+2</answer>")
    assert not verdict.correct


def test_C25_nested_blocks_lose_the_format() -> None:
    verdict = judge([1, 2, 3], 6, "<answer>1+2+3</answer>")
    assert verdict.parts["format"] == 0.0


def test_C26_an_example_in_the_prompt_is_not_an_answer() -> None:
    task = CountdownTask(prompt="{nums} {target}, e.g. <answer>1+2+3</answer>")
    verdict = task.verify(task.problem({"nums": [1, 2, 3], "target": 6}), "I do not know.")
    assert (verdict.reward, verdict.reason) == (0.0, "no answer block")


def test_C28_the_next_sample_is_judged_as_ever() -> None:
    forged = "__import__('builtins').__dict__.update(Fraction=lambda x: 6)"
    assert not judge([1, 2, 3], 6, forged).correct
    assert judge([1, 2, 3], 6, "1+2+3").correct
    assert not judge([1, 2, 3], 6, "1*2-3").correct


def test_C33_a_block_cut_by_the_limit_is_none() -> None:
    for finished, reason in ((False, "cut off before an answer block"), (True, "no answer block")):
        verdict = TASK.verify(problem([1, 2], 3), "well</think><answer>1+2", finished)
        assert (verdict.reward, verdict.reason) == (0.0, reason)


def test_C35_the_prompt_states_the_rule() -> None:
    assert "every one of the numbers exactly once" in DEFAULT_PROMPT


@pytest.mark.parametrize(
    ("completion", "parts", "reward"),
    [
        ("well</think>\n<answer>1+2</answer>", {"format": 0.1, "answer": 1.0}, 1.1),
        ("well</think>\n<answer>1*2</answer>", {"format": 0.1, "answer": 0.0}, 0.1),
        ("well</think> so <answer>1+2</answer>", {"format": 0.0, "answer": 1.0}, 1.0),
        ("well</think> and no answer", {"format": 0.0, "answer": 0.0}, 0.0),
        ("well <answer>1+2</answer>", {"format": 0.0, "answer": 1.0}, 1.0),
    ],
    ids=["both", "format-only", "answer-only", "reasoning-tags-only", "answer-tags-only"],
)
def test_F10_the_format_part_is_all_or_nothing(completion: str, parts: dict[str, float], reward: float) -> None:
    verdict = TASK.verify(problem([1, 2], 3), completion)
    assert dict(verdict.parts) == parts
    assert verdict.reward == reward


@pytest.mark.parametrize(
    ("row", "culprit"),
    [
        ({"target": 3}, "no 'nums'"),
        ({"nums": [1, 2]}, "no 'target'"),
        ({"nums": [], "target": 3}, "1 to 6 integers"),
        ({"nums": [1] * 7, "target": 7}, "1 to 6 integers"),
        ({"nums": "12", "target": 3}, "1 to 6 integers"),
        ({"nums": None, "target": 3}, "1 to 6 integers"),
        ({"nums": [1, "2"], "target": 3}, "'2' in the Countdown row"),
        ({"nums": [1, 2.0], "target": 3}, "2.0 in the Countdown row"),
        ({"nums": [1, True], "target": 2}, "True in the Countdown row"),
        ({"nums": [1, -2], "target": 3}, "-2 in the Countdown row"),
        ({"nums": [1, 2], "target": None}, "None in the Countdown row"),
        ({"nums": [1, 2], "target": 0}, "0 in the Countdown row"),
        ({"nums": [1, 2], "target": 100}, r"\[1, 2\] once equals 100"),
    ],
)
def test_R08_bad_rows_are_reported_when_loading(row: dict[str, object], culprit: str) -> None:
    with pytest.raises(UserError, match=culprit):
        TASK.problem(row)


def test_R08_rows_that_need_fractions_or_negatives_are_solvable() -> None:
    TASK.problem({"nums": [3, 3, 8, 8], "target": 24})


def test_R08_the_check_can_be_left_out() -> None:
    assert TASK.problem({"nums": [1, 2], "target": 100}, check_solvable=False).key == "100:[1, 2]"


def test_G19_a_worker_thread_gives_the_same_verdict() -> None:
    asked = problem([3, 3, 8, 8], 24)
    texts = [f"a</think><answer>{e}</answer>" for e in ("8/(3-8/3)", "3*8", "9**9**9", "(" * 20_000)]
    here = [TASK.verify(asked, text) for text in texts]
    with ThreadPoolExecutor(max_workers=1) as worker:
        there = list(worker.map(lambda text: TASK.verify(asked, text), texts))
    assert there == here


def test_problem_fills_the_template_and_keeps_the_row() -> None:
    row = {"nums": [9, 7], "target": 16, "source": "here"}
    asked = CountdownTask(prompt="{{{nums}}} to {target}", system_prompt="Be brief.").problem(row)
    assert asked.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "{[9, 7]} to 16"},
    )
    assert (asked.row, asked.key, asked.response_start) == (row, "16:[7, 9]", "<think>")


def test_difficulty_is_how_many_numbers_there_are() -> None:
    assert [problem([3, 4, 5, 6][:count], 7).difficulty for count in (3, 4)] == ["3 numbers", "4 numbers"]


def test_no_system_prompt_sends_none() -> None:
    asked = CountdownTask(system_prompt=None).problem({"nums": [1, 2], "target": 3})
    assert [message["role"] for message in asked.messages] == ["user"]


@pytest.mark.parametrize(
    ("prompt", "culprit"),
    [
        ("Make {target}.", r"lacks the placeholder \{nums\}"),
        ("Use {nums}.", r"lacks the placeholder \{target\}"),
        ("{nums} {target} {number}", r"placeholder \{number\}"),
        ("{nums} {targets}", r"\{targets\}.*Did you mean 'target'"),
        ("{nums.__class__} {target}", r"\{nums.__class__\}"),
        ("{nums!r} {target}", r"\{nums!r\}"),
        ("{nums} {target:>{nums}}", r"\{target:>"),
        ("{nums} {target} {}", r"placeholder \{\}"),
        ("{nums} {target", "cannot be read as a template"),
    ],
)
def test_a_bad_template_is_refused(prompt: str, culprit: str) -> None:
    with pytest.raises(UserError, match=culprit):
        CountdownTask(prompt=prompt)
