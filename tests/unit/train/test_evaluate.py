"""Held-out success, and the numbers of a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.runs import run_config

from grpo_zero.config import Config, EvaluationConfig
from grpo_zero.observe.catalogue import require_known
from grpo_zero.rollout.engine import Engine
from grpo_zero.train.evaluate import Judged, evaluate
from grpo_zero.train.metrics import rollout_metrics, time_metrics
from grpo_zero.train.policy import Policy, load_policy
from grpo_zero.train.problems import ProblemSource, Prompted, load_rows, make_task
from grpo_zero.types import Completion, Problem, Verdict


@pytest.fixture
def setting(digits_task: None, model_folder: Path) -> tuple[Config, Policy, ProblemSource]:
    config = run_config(model_folder, Path("unused"))
    policy = load_policy(config.model, init_seed=0)
    return (
        config,
        policy,
        ProblemSource(make_task(config), policy, load_rows(config, make_task(config))[1], 40, "held-out"),
    )


def run(setting, evaluation: EvaluationConfig, num_slots: int | None = None):
    config, policy, source = setting
    engine = Engine(policy.decoder, policy.tokenizer.stop_ids, policy.has_token_V, num_slots)
    config = replace(
        config, evaluation=replace(evaluation, max_gen_len=6), training=replace(config.training, random_seed=3)
    )
    return evaluate(policy, engine, make_task(config), source.first(None), config)


def test_sampled_and_greedy_success_with_intervals(setting) -> None:
    metrics, judged = run(setting, EvaluationConfig(samples_per_problem=4))
    require_known(metrics)
    assert np.shape(judged) == (6, 4)
    correct = np.mean([[answer.verdict.correct for answer in group] for group in judged])
    assert metrics["eval/success"] == pytest.approx(correct)
    assert 0 < metrics["eval/success"] < 1
    assert metrics["eval/success_low"] < metrics["eval/success"] < metrics["eval/success_high"]
    assert metrics["eval/greedy_success_low"] <= metrics["eval/greedy_success"] <= metrics["eval/greedy_success_high"]
    assert metrics["eval/truncated_share"] > 0
    assert metrics["eval/length"] <= 6


def test_greedy_can_be_left_out(setting) -> None:
    metrics, _ = run(setting, EvaluationConfig(greedy=False))
    assert not any("greedy" in name for name in metrics)


def test_every_evaluation_draws_the_same_noise(setting) -> None:
    evaluation = EvaluationConfig(samples_per_problem=2, top_k=0)
    first = run(setting, evaluation)
    torch.rand(7)
    again = run(setting, evaluation, num_slots=3)
    assert [a.text for group in first[1] for a in group] == [a.text for group in again[1] for a in group]
    assert first[0].pop("eval/eval_s") > 0
    assert again[0].pop("eval/eval_s") > 0
    assert first[0] == again[0], "everything but the time it took"


def test_truncated_sampling_reaches_the_engine(setting) -> None:
    one = run(setting, EvaluationConfig(top_k=1, samples_per_problem=2, greedy=True))
    assert one[0]["eval/success"] == one[0]["eval/greedy_success"]
    assert all(group[0].text == group[1].text for group in one[1])


def judged(p: int, g: int, reward: float, length: int, *, finished: bool = True) -> Judged:
    completion = Completion(p, g, [1] * length, [0.0] * length, "stop" if finished else "length", 0)
    return Judged(
        Prompted(Problem((), "", {}, ""), []), completion, "", Verdict(reward, {"answer": reward}, "", reward == 1.0)
    )


def test_the_numbers_of_a_step() -> None:
    groups = [
        [judged(0, 0, 1.0, 4), judged(0, 1, 0.0, 2, finished=False)],
        [judged(1, 0, 1.0, 6), judged(1, 1, 1.0, 8)],
        [judged(2, 0, 0.0, 1), judged(2, 1, 0.0, 3)],
        [judged(3, 0, 0.5, 4), judged(3, 1, 0.0, 4)],
    ]
    metrics = rollout_metrics(groups)
    require_known(metrics)
    assert metrics == pytest.approx(
        {
            "reward": 3.5 / 8,
            "reward_std": (3.25 / 8 - (3.5 / 8) ** 2) ** 0.5,
            "reward/answer": 3.5 / 8,
            "success": 3 / 8,
            "length": 4.0,
            "length_right": 6.0,
            "length_wrong": 14 / 5,
            "truncated_share": 1 / 8,
            "zero_variance_share": 0.5,
            "zero_variance_all_right_share": 0.25,
            "zero_variance_all_wrong_share": 0.25,
            "zero_variance_expected": (3 / 8) ** 2 + (5 / 8) ** 2,
            "num_finished": 7,
            "num_tokens": 32,
        }
    )
    only_wrong = rollout_metrics(groups[2:3])
    assert "length_right" not in only_wrong


def test_times_add_up_and_speeds_follow() -> None:
    facts = {"sample_s": 2.0, "num_tokens": 100, "forwarded_tokens": 60}
    found = time_metrics((10.0, 12.5, 12.5, 14.5), {"prefill": 0.5, "other": 9.0}, facts, torch.device("cpu"))
    require_known(found)
    assert (found["update_s"], found["step_s"]) == (2.0, 4.5)
    assert (found["prefill_s"], found["verify_s"]) == (0.5, 0.0)
    assert "reference_s" not in found
    assert time_metrics((0, 1, 4, 5), {}, facts, torch.device("cpu"), has_reference=True)["reference_s"] == 3
    assert found["sample_share"] == pytest.approx(2 / 4.5)
    assert (found["tokens_per_s_sample"], found["tokens_per_s_update"]) == (50.0, 30.0)
    assert found["peak_gib"] > 0
