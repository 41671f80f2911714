"""Search demonstrations: right where they say yes, of the exact form, and drawn as described."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown import CountdownTask
from grpo_zero.tasks.expressions import read_expression
from grpo_zero.tasks.search_text import all_tries, search_response

TASK = CountdownTask()
NUMS, TARGET = [9, 7, 8], 24
PROBLEM = TASK.problem({"nums": NUMS, "target": TARGET})


def responses(num: int, **options: object) -> list[str]:
    rng = np.random.default_rng(0)
    return [search_response(NUMS, TARGET, rng, **options) for _ in range(num)]  # type: ignore[arg-type]


def test_tries_of_two_numbers() -> None:
    assert [(one.steps, one.value, one.expression) for one in all_tries([3, 6])] == [
        (("3 + 6 = 9",), 9, "3 + 6"),
        (("3 * 6 = 18",), 18, "3 * 6"),
        (("6 - 3 = 3",), 3, "6 - 3"),
        (("6 / 3 = 2",), 2, "6 / 3"),
    ]


def test_lines() -> None:
    wanted = next(one for one in all_tries(NUMS) if one.expression == "(9 - 7) + 8")
    assert wanted.line(10) == "9 - 7 = 2, 2 + 8 = 10, yes"
    assert wanted.line(24) == "9 - 7 = 2, 2 + 8 = 10, no"


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=4))
def test_every_try_is_true(nums: list[int]) -> None:
    tries = all_tries(nums)
    assert len({one.steps for one in tries}) == len(tries)
    for one in tries:
        expression = read_expression(one.expression)
        assert expression.value == one.value >= 0
        assert sorted(expression.numbers) == sorted(nums)
        for step in one.steps:
            left, _, result = step.partition(" = ")
            assert read_expression(left).value == int(result) >= 0


def test_zero_is_never_divided_by() -> None:
    assert not any("/ 0" in step for one in all_tries([5, 5, 3]) for step in one.steps)


def test_responses_are_of_the_exact_form_and_right_where_they_say_so() -> None:
    for text in responses(200):
        verdict = TASK.verify(PROBLEM, text)
        assert verdict.parts["format"] == 0.1
        lines = text.split("</think>")[0].splitlines()
        assert verdict.correct is lines[-1].endswith(", yes")
        assert all(line.endswith(", no") for line in lines[:-1])
        assert len(set(lines)) == len(lines) <= 5
        if not verdict.correct:
            assert lines[-1] == "I give up."
            assert text.endswith("<answer>none</answer>")


def test_the_draw_follows_the_options() -> None:
    free_of_right = sum(one.value != TARGET for one in all_tries(NUMS)) / len(all_tries(NUMS))
    texts = responses(600, tries=(1, 1), give_up=0.35)
    gave_up = sum("I give up." in text for text in texts) / len(texts)
    assert gave_up == pytest.approx(free_of_right * 0.35, abs=0.07)
    assert all("give up" not in text for text in responses(50, give_up=0.0))
    assert all(text.count("\n") == 2 for text in responses(20, tries=(0, 0), give_up=0.0))


def test_equal_seeds_give_equal_texts() -> None:
    assert responses(10) == responses(10)


def test_the_opening_tag_is_written_only_where_the_prompt_lacks_it() -> None:
    assert all(text.startswith("<think>\n") for text in responses(5, response_start=""))
    assert all("<think>" not in text for text in responses(5, response_start="Hm. <think>\n"))


def test_a_target_out_of_reach_ends_in_giving_up() -> None:
    text = search_response([1, 2], 50, np.random.default_rng(0), tries=(9, 9), give_up=0.0)
    *lines, giving_up, closing, answer = text.splitlines()
    assert sorted(lines) == ["1 * 2 = 2, no", "1 + 2 = 3, no", "2 - 1 = 1, no", "2 / 1 = 2, no"]
    assert (giving_up, closing, answer) == ("I give up.", "</think>", "<answer>none</answer>")


@pytest.mark.parametrize("nums", [[5], [1, 2, 3, 4, 5, 6]])
def test_counts_that_cannot_be_listed_are_refused(nums: list[int]) -> None:
    with pytest.raises(UserError, match="2 to 5 numbers"):
        all_tries(nums)


@pytest.mark.parametrize("options", [{"tries": (3, 1)}, {"tries": (-1, 1)}, {"give_up": 1.5}])
def test_impossible_options_are_refused(options: dict) -> None:
    with pytest.raises(UserError, match="expected a lower and an upper number"):
        responses(1, **options)


def test_skew_makes_short_searches_frequent() -> None:
    """P(smallest of k uniform draws over 1..4 is 1) = 1 - (3/4)^k."""
    texts = [
        search_response([97, 98, 99], 1, np.random.default_rng(seed), tries=(1, 4), tries_skew=3, give_up=1.0)
        for seed in range(400)
    ]
    share = sum(text.count(", no") == 1 for text in texts) / len(texts)
    assert share == pytest.approx(1 - 0.75**3, abs=0.08)


def test_focus_draws_tries_near_the_target_first() -> None:
    def first_values(focus: float | None) -> list[int]:
        texts = [
            search_response([3, 7, 11], 50, np.random.default_rng(seed), tries=(1, 1), give_up=1.0, focus=focus)
            for seed in range(200)
        ]
        return [int(text.split("\n")[0].split(" = ")[-1].split(",")[0]) for text in texts]

    def distance(focus: float | None) -> float:
        return float(np.mean([abs(value - 50) for value in first_values(focus)]))

    assert distance(5.0) < 0.5 * distance(None)
    assert len(set(first_values(20.0))) > 5, "not always the nearest"
