"""The toy reasoner learns by the NumPy reference alone, and breaks in the three ways it should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grpo_zero.reference import toy
from grpo_zero.reference.statistics import zero_variance_probability


def last(history: list[dict[str, float]], name: str, steps: int = 30) -> float:
    """Mean over the last steps that have the number."""
    return float(np.mean([facts[name] for facts in history[-steps:] if name in facts]))


@pytest.fixture(scope="module")
def working() -> list[dict[str, float]]:
    return toy.train(toy.WORKING)


def test_reward_rises(working) -> None:
    assert working[0]["success"] < 0.1
    assert last(working, "success") > 0.9
    assert last(working, "reward") == last(working, "success")
    assert toy.new_table().size == 504


def test_zero_variance_share_is_what_z_predicts(working) -> None:
    """Step by step within its sampling error, and in the sum over the run; the share falls and rises again, as z does."""
    expected, observed, sd = (
        np.array([facts[name] for facts in working])
        for name in ("expected_zero_variance_share", "zero_variance_share", "zero_variance_sd")
    )
    assert abs((observed - expected).sum() / np.sqrt((sd**2).sum())) < 3
    assert np.mean(np.abs(observed - expected) < 2 * sd) > 0.9
    assert expected[0] > 0.6 > 0.3 > expected.min() < 0.3 < 0.6 < expected[-1]


def test_z_at_a_fixed_policy() -> None:
    table = np.random.default_rng(0).normal(size=toy.new_table().shape)
    num_groups, group_size = 500, 8
    success = toy.success_probability(table)
    questions = np.arange(1, toy.LARGEST + 1).repeat(num_groups)
    answers = toy.sample(table, questions.repeat(group_size), np.random.default_rng(1))
    right = answers.right_B.reshape(toy.LARGEST, num_groups, group_size)
    error = np.sqrt(success * (1 - success) / (num_groups * group_size))
    assert (np.abs(right.mean((1, 2)) - success) < 4 * error).all()
    expected = zero_variance_probability(success, group_size)
    share = (right.all(2) | ~right.any(2)).mean(1)
    assert (np.abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / num_groups)).all()


@pytest.mark.parametrize("average", ["sequence", "token", "constant"])
def test_the_tables_gradient_is_the_slope_of_the_loss(average: str) -> None:
    rng = np.random.default_rng(2)
    table = rng.normal(size=toy.new_table().shape)
    answers = toy.sample(table, np.array([3, 7, 12, 1]), rng)
    advantages_B = rng.normal(size=4)
    old = toy.logprobs_of(table, answers)
    _, gradient = toy.loss_gradient(table, answers, advantages_B, average)
    for row, token in ((int(answers.contexts[0][0]), 0), (int(answers.contexts[2][-1]), 3), (0, 0)):
        values = []
        for change in (1e-6, -1e-6):
            moved = table.copy()
            moved[row, token] += change
            values.append(toy.loss(toy.logprobs_of(moved, answers), old, advantages_B, average)[0])
        assert gradient[row, token] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-7)


def test_an_answer_ends_once_and_is_right_where_it_stands() -> None:
    answers = toy.sample(toy.new_table(), np.arange(1, 13).repeat(50), np.random.default_rng(3))
    for question, tokens, right, finished in zip(
        answers.questions_B, answers.tokens, answers.right_B, answers.finished_B, strict=True
    ):
        assert ((tokens == toy.STOP) | (tokens == toy.CLAIM))[:-1].sum() == 0
        assert finished == (tokens[-1] in (toy.STOP, toy.CLAIM))
        assert finished or len(tokens) == toy.MAX_LENGTH
        assert right == (finished and toy.MOVES[tokens].sum() == question)
    assert 0 < answers.right_B.mean() < 0.2


@pytest.mark.parametrize("seed", [0, 1])
def test_without_a_baseline_noise_takes_over(seed: int) -> None:
    """A constant paid to everyone: no comparison sees it, and without one it drowns the differences."""
    healthy, broken = (toy.train(replace(config, seed=seed)) for config in toy.BREAKAGES["no baseline"])
    unpaid = toy.train(replace(toy.BREAKAGES["no baseline"][0], seed=seed, pays_all=0.0))
    assert [facts["success"] for facts in unpaid] == [facts["success"] for facts in healthy]
    assert last(broken, "success") < last(healthy, "success") - 0.02
    assert last(broken, "entropy") < 0.8 * last(healthy, "entropy"), "surer, and more often wrong"
    assert last(broken, "grad_norm") > 3 * last(healthy, "grad_norm"), "groups that teach nothing still push"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_mean_over_each_answer_lengthens_wrong_answers(seed: int) -> None:
    """L10: a long wrong answer is punished less per token. Success alone would not show it."""
    healthy, broken = (toy.train(replace(config, seed=seed)) for config in toy.BREAKAGES["length bias"])
    ratio = {
        name: last(run, "length_wrong", 60) / last(run, "length_right", 60)
        for name, run in (("healthy", healthy), ("broken", broken))
    }
    assert ratio["healthy"] < 1.1
    assert ratio["broken"] > 1.25
    assert last(broken, "success") > 0.9


def test_a_checker_that_reads_only_what_is_written_is_hacked() -> None:
    """Reward up, success down, answers short: reward alone would look like learning."""
    history = toy.train(toy.BREAKAGES["hackable reward"][1])
    assert last(history, "reward") > 0.95
    assert last(history, "success") < 0.05
    assert last(history, "claimed_share") > 0.95
    assert last(history, "length") < 0.7 * history[0]["length"]
