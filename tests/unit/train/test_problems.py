"""Which problems a step gets: a pure function of seed and step; long prompts are left out and counted."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from helpers.runs import run_config

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.tasks.countdown_generate import is_held_out
from grpo_zero.train import problems as problems_module
from grpo_zero.train.policy import Policy, load_policy
from grpo_zero.train.problems import ProblemSource, endless_order, load_rows, make_task


@pytest.fixture(scope="module")
def config(model_folder: Path) -> Config:
    return run_config(model_folder, Path("unused"), "data.task=countdown")


@pytest.fixture(scope="module")
def policy(config: Config) -> Policy:
    return load_policy(config.model, init_seed=0)


def source(config: Config, policy: Policy, rows, max_prompt_len: int = 40) -> ProblemSource:
    return ProblemSource(make_task(config), policy, rows, max_prompt_len, "training")


ROWS = [{"nums": [i, 1], "target": i + 1} for i in range(1, 8)]


def keys(items) -> list[str]:
    return [item.problem.key for item in items]


def test_every_pass_covers_all_rows_in_an_order_of_its_own() -> None:
    order = list(islice(endless_order(3, 10, 0), 30))
    passes = [order[:10], order[10:20], order[20:]]
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert passes[0] != passes[1] != passes[2]
    assert list(islice(endless_order(4, 10, 0), 10)) != passes[0]


@pytest.mark.parametrize("position", [1, 9, 10, 17])
def test_the_order_can_be_entered_anywhere(position: int) -> None:
    order = list(islice(endless_order(3, 10, 0), 40))
    assert list(islice(endless_order(3, 10, position), 20)) == order[position : position + 20]


def test_steps_draw_in_turn_and_keep_no_state(config: Config, policy: Policy) -> None:
    problems = source(config, policy, ROWS)
    drawn = [keys(problems.draw(5, step, 3)) for step in range(1, 8)]
    assert sorted(key for step in drawn for key in step) == sorted(
        3 * [f"{i + 1}:{sorted([i, 1])}" for i in range(1, 8)]
    )
    assert keys(problems.draw(5, 4, 3)) == drawn[3]
    assert keys(problems.draw(6, 1, 7)) != keys(problems.draw(5, 1, 7))


def test_long_prompts_are_left_out_whole_and_counted(config: Config, policy: Policy) -> None:
    """T04: never cut."""
    long_row = {"nums": [1, 1, 1, 1, 1], "target": 5}
    rows = [*ROWS[:3], long_row, *ROWS[3:]]
    limit = max(len(item.prompt_ids) for item in source(config, policy, ROWS).first(None))
    problems = source(config, policy, rows, limit)
    assert (len(problems), problems.num_too_long) == (7, 1)
    assert keys(problems.first(None)) == keys(source(config, policy, ROWS).first(None))
    assert keys(problems.first(2)) == keys(source(config, policy, ROWS).first(2))
    assert "5:[1, 1, 1, 1, 1]" not in keys(problems.draw(0, 1, 50))


def test_long_prompts_found_late_are_replaced(config: Config, policy: Policy, monkeypatch) -> None:
    monkeypatch.setattr(problems_module, "NUM_MEASURED_PROMPTS", 3)
    rows = [*ROWS, {"nums": [1, 1, 1, 1, 1], "target": 5}]
    limit = max(len(item.prompt_ids) for item in source(config, policy, ROWS).first(None))
    problems = source(config, policy, rows, limit)
    assert len(problems) == 8
    drawn = keys(problems.draw(0, 1, 20))
    assert len(drawn) == 20
    assert "5:[1, 1, 1, 1, 1]" not in drawn


def test_no_prompt_that_fits_is_an_error_with_the_numbers(config: Config, policy: Policy) -> None:
    shortest = min(len(item.prompt_ids) for item in source(config, policy, ROWS).first(None))
    with pytest.raises(UserError, match=f"None of the 7 training prompts.*= 4 tokens.*has {shortest}"):
        source(config, policy, ROWS, 4)


@pytest.mark.parametrize(
    ("row", "culprit"),
    [({"nums": [2, 2], "target": 77}, "77"), ({"nums": [2, "x"], "target": 4}, "'x'"), ({"target": 4}, "nums")],
)
def test_a_bad_row_stops_the_run_before_it_starts(config: Config, policy: Policy, row, culprit: str) -> None:
    """R08."""
    with pytest.raises(UserError, match=culprit):
        source(config, policy, [*ROWS, row])


def test_all_columns_reach_the_verifier(config: Config, policy: Policy) -> None:
    """R02."""
    item = source(config, policy, [{**ROWS[0], "id": "seven"}]).first(None)[0]
    assert item.problem.row["id"] == "seven"


def test_generated_training_and_held_out_rows_are_disjoint(config: Config) -> None:
    train, test, facts = load_rows(config, make_task(config))
    assert (len(train), len(test), facts["train"]) == (32, 6, 32)
    assert not any(is_held_out(row["nums"], row["target"]) for row in train)
    assert all(is_held_out(row["nums"], row["target"]) for row in test)


def test_the_wording_is_the_configs(model_folder: Path, policy: Policy) -> None:
    more = ("data.prompt=Numbers {nums}, goal {target}", "data.response_start=<think>", "data.task=countdown")
    config = run_config(model_folder, Path("unused"), *more)
    [item] = source(config, policy, ROWS[:1], 1000).first(None)
    text = policy.tokenizer.decode(item.prompt_ids)
    assert "Numbers [1, 1], goal 2" in text
    assert text.endswith("<think>")
    assert "system" not in text
