"""Asking a model: a record for every answer, equal to what the evaluation of a run counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.runs import run_config

from grpo_zero.errors import UserError
from grpo_zero.scores.groups import grouped, problems_of
from grpo_zero.scores.summary import summary
from grpo_zero.train.ask import ask, distinct
from grpo_zero.train.evaluate import evaluate
from grpo_zero.train.policy import load_policy, make_engine
from grpo_zero.train.problems import held_out_problems, load_rows, make_task

pytestmark = pytest.mark.usefixtures("digits_task")


def test_the_records_say_what_the_evaluation_of_a_run_says(model_folder: Path, capsys) -> None:
    config = run_config(model_folder, Path("unused"), "evaluation.samples_per_problem=4")
    task = make_task(config)
    rows = load_rows(config, task)[1]
    answers, machine = ask(config, task, rows)
    assert machine["device"] == "cpu"
    assert len(answers) == 6 * (4 + 1)
    groups = grouped(answers, "here")
    found = summary(groups)
    policy = load_policy(config.model, init_seed=config.training.random_seed)
    items = held_out_problems(config, task, policy, rows)
    metrics, judged = evaluate(policy, make_engine(policy, config.training), task, items, config)
    assert found["sampled"]["success"]["mean"] == pytest.approx(metrics["eval/success"])
    assert found["sampled"]["success"]["low"] == pytest.approx(metrics["eval/success_low"])
    assert found["greedy"]["success"]["mean"] == pytest.approx(metrics["eval/greedy_success"])
    assert found["sampled"]["truncated_share"] == pytest.approx(metrics["eval/truncated_share"])
    assert found["sampled"]["length"] == pytest.approx(metrics["eval/length"])
    assert found["sampled"]["parts"]["digits"] == pytest.approx(metrics["eval/reward/digits"])
    assert [answer.response for answer in groups["sampled"][2]] == [one.text for one in judged[2]]
    first = answers[0]
    assert (first.decoding, first.sample_index, first.difficulty) == ("greedy", 0, "2 numbers")
    assert problems_of(groups) == [item.problem.key for item in items]
    assert first.prompt == policy.tokenizer.decode(items[0].prompt_ids)
    assert "one answer of" in capsys.readouterr().out
    assert np.mean([answer.correct for answer in answers]) > 0


def test_other_problems_than_expected_stop_it_before_it_samples(model_folder: Path, monkeypatch) -> None:
    config = run_config(model_folder, Path("unused"))
    task = make_task(config)
    monkeypatch.setattr("grpo_zero.train.ask.answer_all", lambda *_, **__: pytest.fail("it sampled"))
    with pytest.raises(UserError, match=r"were not asked the same problems: old.jsonl lacks 6 of the 6"):
        ask(config, task, load_rows(config, task)[1], (["1:[1]"], "old.jsonl"))


def test_a_question_that_comes_again_is_told_apart() -> None:
    assert list(distinct(["a", "b", "a", "a"])) == ["a", "b", "a #2", "a #3"]
