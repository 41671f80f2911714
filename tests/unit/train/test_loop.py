"""One GRPO step: which completions enter the loss, with which advantages, over which normaliser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.runs import DigitsTask, run_config

from grpo_zero.algorithms.advantages import advantages
from grpo_zero.config import Config, TrainingConfig
from grpo_zero.rollout.engine import Engine
from grpo_zero.settings import field_names
from grpo_zero.train import loop as loop_module
from grpo_zero.train.evaluate import Judged
from grpo_zero.train.loop import GRPO
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.policy import load_policy
from grpo_zero.train.problems import ProblemSource, Prompted, load_rows, make_task
from grpo_zero.train.rows import train_rows
from grpo_zero.types import Completion, FinishReason, Problem, Verdict


def judged_group(p: int, rewards: Sequence[float], reasons: Sequence[FinishReason]) -> list[Judged]:
    """Answers of 1, 2, 3, ... tokens."""
    item = Prompted(Problem((), "", {}, str(p)), [p, p])
    return [
        Judged(item, Completion(p, g, [9] * (g + 1), [-1.0] * (g + 1), reason, 0), "", Verdict(r, {}, "", r > 0.5))
        for g, (r, reason) in enumerate(zip(rewards, reasons, strict=True))
    ]


def test_unfinished_answers_count_in_the_statistics_and_not_in_the_loss() -> None:
    """A10: group statistics first, over all answers; the mask afterwards."""
    rewards_PG = np.array([[1.0, 0.0, 0.0, 0.0]])
    judged = [judged_group(0, rewards_PG[0], ["stop", "length", "stop", "length"])]
    advantages_PG = advantages(torch.from_numpy(rewards_PG)).numpy()
    rows = train_rows(judged, advantages_PG, skip_unfinished=True)
    assert [len(row.completion_ids) for row in rows] == [1, 3]
    assert [row.advantage for row in rows] == advantages_PG[0, [0, 2]].tolist()
    assert rows[0].advantage == pytest.approx(1.732, abs=1e-3)
    assert len(train_rows(judged, advantages_PG, skip_unfinished=False)) == 4


def test_rows_carry_their_group_prompt_and_logprobs() -> None:
    judged = [judged_group(p, [0.0, 1.0], ["stop", "stop"]) for p in range(2)]
    rows = train_rows(judged, np.array([[-1.0, 1.0], [-2.0, 2.0]]), skip_unfinished=True)
    assert [(row.group, row.prompt_ids, row.advantage) for row in rows] == [
        (0, [0, 0], -1.0),
        (0, [0, 0], 1.0),
        (1, [1, 1], -2.0),
        (1, [1, 1], 2.0),
    ]
    assert [row.sampled_logprobs for row in rows] == [[-1.0], [-1.0, -1.0]] * 2


def make_grpo(config: Config) -> GRPO:
    policy = load_policy(config.model, init_seed=config.training.random_seed)
    task = make_task(config)
    problems = ProblemSource(
        task, policy, load_rows(config, make_task(config))[0], config.training.max_prompt_len, "training"
    )
    return GRPO(config, policy, task, problems, make_optimizer(policy.decoder, config.training))


@pytest.mark.usefixtures("digits_task")
@pytest.mark.parametrize("skip", ["true", "false"])
def test_the_normaliser_counts_what_the_loss_counts(model_folder: Path, tmp_path: Path, monkeypatch, skip: str) -> None:
    """L04, L05: truncated answers are in neither the loss nor its normaliser, or in both."""
    config = run_config(model_folder, tmp_path, f"training.skip_unfinished_episodes={skip}", "training.max_gen_len=20")
    grpo = make_grpo(config)
    seen = {}

    def catch(policy, optimizer, rows, *rest):
        seen.update(rows=rows)
        return {"loss": 0.0, "grad_norm": 0.0, "forwarded_tokens": 0}

    monkeypatch.setattr(loop_module, "update", catch)
    # Eight stop ids out of some 220, so that some answers end by themselves and some are cut.
    grpo.engine = Engine(grpo.policy.decoder, frozenset(range(100, 108)), grpo.policy.has_token_V)
    done = grpo.step(1)
    answers = [answer.completion for group in done.judged_PG for answer in group]
    assert {c.is_finished for c in answers} == {True, False}
    kept = [c for c in answers if c.is_finished or skip == "false"]
    assert [row.completion_ids for row in seen["rows"]] == [c.token_ids for c in kept]
    assert {row.weight for row in seen["rows"]} == {1 / sum(len(c.token_ids) for c in kept)}
    rewards_PG = np.array([[answer.verdict.reward for answer in group] for group in done.judged_PG])
    np.testing.assert_array_equal(done.advantages_PG, advantages(torch.from_numpy(rewards_PG)).numpy())


@pytest.mark.usefixtures("digits_task")
def test_a_steps_noise_is_named_by_seed_and_step(model_folder: Path, tmp_path: Path, monkeypatch) -> None:
    grpo = make_grpo(run_config(model_folder, tmp_path, "training.random_seed=11", "training.temperature=0.8"))
    generate, seen = grpo.engine.generate, []

    def watched(prompts, num_samples, params, **named):
        seen.append((len(prompts), num_samples, params.temperature, named["seed_key"], named["policy_step"]))
        return generate(prompts, num_samples, params, **named)

    monkeypatch.setattr(grpo.engine, "generate", watched)
    for step in (1, 3, 2):
        grpo.step(step)
    assert seen == [(2, 4, 0.8, (11, "sample", step), step - 1) for step in (1, 3, 2)]


@pytest.mark.usefixtures("digits_task")
def test_training_samples_from_the_whole_distribution(model_folder: Path, tmp_path: Path, monkeypatch) -> None:
    """N03: truncation exists in evaluation only, so no trained token can be one that the trainer's distribution excludes."""
    grpo = make_grpo(run_config(model_folder, tmp_path, "evaluation.top_k=3", "evaluation.top_p=0.5"))
    generate, seen = grpo.engine.generate, []
    monkeypatch.setattr(
        grpo.engine, "generate", lambda p, n, params, **k: seen.append(params) or generate(p, n, params, **k)
    )
    grpo.step(1)
    assert [(params.top_k, params.top_p) for params in seen] == [(None, 1.0)]
    assert not [name for name in field_names(TrainingConfig) if "top_" in name]


@pytest.mark.usefixtures("digits_task")
def test_a_step_without_a_finished_answer_is_recorded_and_moves_nothing(model_folder: Path, tmp_path: Path) -> None:
    """L07."""
    config = run_config(
        model_folder,
        tmp_path,
        "training.skip_unfinished_episodes=true",
        "training.max_gen_len=2",
        "training.weight_decay=0.1",
    )
    grpo = make_grpo(config)
    grpo.engine.stop_ids = frozenset()
    before = {name: p.detach().clone() for name, p in grpo.policy.decoder.named_parameters()}
    metrics = grpo.step(1).record.metrics
    assert (metrics["truncated_share"], metrics["grad_norm"], metrics["loss"]) == (1.0, 0.0, 0.0)
    assert grpo.optimizer.num_steps == 0
    for name, parameter in grpo.policy.decoder.named_parameters():
        assert torch.equal(parameter, before[name])


@pytest.mark.usefixtures("digits_task")
def test_a_step_moves_the_weights_and_tells_what_it_did(model_folder: Path, tmp_path: Path) -> None:
    grpo = make_grpo(run_config(model_folder, tmp_path, "training.warmup_steps=4"))
    before = grpo.policy.decoder.embedding.weight.detach().clone()
    done = grpo.step(1)
    assert not torch.equal(grpo.policy.decoder.embedding.weight, before)
    metrics = done.record.metrics
    assert (done.record.step, done.record.kind) == (1, "train")
    assert metrics["learning_rate"] == pytest.approx(0.003 / 4)
    assert metrics["num_tokens"] == sum(len(a.completion.token_ids) for group in done.judged_PG for a in group)
    assert metrics["reward"] == pytest.approx(
        np.mean([answer.verdict.reward for group in done.judged_PG for answer in group])
    )
    assert metrics["logprob_gap"] < 1e-5
    assert metrics["grad_norm"] > 0
    assert grpo.step(2).record.metrics["learning_rate"] == pytest.approx(0.003 / 2)
    assert all(parameter.grad is None for parameter in grpo.policy.decoder.parameters()), "free while sampling"


def test_the_digits_task_counts() -> None:
    assert DigitsTask().verify(None, "12ab").reward == 0.5
