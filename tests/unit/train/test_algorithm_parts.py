"""The parts of an algorithm inside a real step: several updates, a KL to the start, penalties, filtering."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.runs import run_config
from helpers.tiny import padded_logprobs

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.presets import PRESETS
from grpo_zero.reference import advantages as reference_advantages
from grpo_zero.reference import averages as reference_averages
from grpo_zero.reference import rewards as reference_rewards
from grpo_zero.train import kl_reference as kl_module
from grpo_zero.train import loop as loop_module
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.kl_reference import load_kl_reference
from grpo_zero.train.loop import GRPO
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.policy import load_policy
from grpo_zero.train.problems import ProblemSource, load_rows, make_task
from grpo_zero.train.rewards import shaped_rewards
from grpo_zero.train.run import train
from grpo_zero.types import Problem, Verdict

NOTHING_FORWARDED = {"loss": 0.0, "grad_norm": 0.0, "forwarded_tokens": 0}
pytestmark = pytest.mark.usefixtures("digits_task")


def make_grpo(config: Config) -> GRPO:
    policy = load_policy(config.model, init_seed=config.training.random_seed)
    task = make_task(config)
    problems = ProblemSource(
        task, policy, load_rows(config, make_task(config))[0], config.training.max_prompt_len, "training"
    )
    optimizer = make_optimizer(policy.decoder, config.training)
    return GRPO(config, policy, task, problems, optimizer, load_kl_reference(policy, config))


@pytest.fixture
def grpo(model_folder: Path, tmp_path: Path):
    return lambda *settings: make_grpo(run_config(model_folder, tmp_path, *settings))


def test_several_updates_a_rollout(grpo) -> None:
    """The first sees a ratio of exactly 1; later ones move away from the policy that sampled."""
    once, often = grpo(), grpo("training.updates_per_rollout=4")
    first, second = once.step(1).record.metrics, often.step(1).record.metrics
    assert (once.optimizer.num_steps, often.optimizer.num_steps) == (1, 4)
    assert first["kl_old"] == first["clip_fraction_low"] == first["clip_fraction_high"] == 0.0
    assert second["kl_old"] > 0
    assert second["forwarded_tokens"] == 4 * first["forwarded_tokens"]
    assert (first["num_updates"], second["num_updates"]) == (1, 4)
    assert second["logprob_gap"] == first["logprob_gap"]


def test_clipping_holds_the_policy_back(grpo) -> None:
    """At a large learning rate the range is left, and a narrow range moves the policy less than none."""
    settings = ("training.updates_per_rollout=8", "training.learning_rate=0.02", "training.batch_size=32")
    narrow = grpo(*settings, "algorithm.clip_low=0.05", "algorithm.clip_high=0.05").step(1).record.metrics
    wide = grpo(*settings, "algorithm.clip_low=1", "algorithm.clip_high=1000").step(1).record.metrics
    assert narrow["clip_fraction_low"] > 0.05 < narrow["clip_fraction_high"]
    assert wide["clip_fraction_high"] == wide["clip_fraction_low"] == 0.0
    assert narrow["kl_old"] < wide["kl_old"]


def make_flat(run: GRPO, key: str) -> None:
    """All answers to that question are paid the same."""
    verify = run.task.verify

    def flat(problem: Problem, completion: str, finished: bool = True) -> Verdict:
        verdict = verify(problem, completion, finished)
        return replace(verdict, reward=0.5) if problem.key == key else verdict

    run.task.verify = flat


@pytest.mark.parametrize(
    ("preset", "more"),
    [
        ("grpo_zero", ()),
        ("rloo", ("algorithm.overlong_buffer_share=0.5",)),
        ("batch_std", ("algorithm.std=sample",)),
        ("gspo", ()),
    ],
)
@pytest.mark.parametrize("skip", ["true", "false"])
def test_what_an_update_gets_is_what_the_reference_says(
    grpo, monkeypatch, preset: str, more: tuple[str, ...], skip: str
) -> None:
    """Shaped rewards -> advantages over whole groups -> weights over each update's own rows, dead ones included (L04)."""
    run = grpo(
        f"algorithm={preset}",
        *more,
        f"training.skip_unfinished_episodes={skip}",
        "training.max_gen_len=20",
        "training.num_questions_per_batch=4",
        "training.batch_size=24",
        "training.updates_per_rollout=2",
        "training.questions_per_update=2",
    )
    run.engine.stop_ids = frozenset(range(100, 112))
    problems = run.problems.draw(run.config.training.random_seed, 1, 4)
    make_flat(run, problems[1].problem.key)
    seen: list[list[TrainRow]] = []
    monkeypatch.setattr(
        loop_module, "update", lambda policy, optimizer, rows, *rest: seen.append(rows) or dict(NOTHING_FORWARDED)
    )
    judged_PG = run.step(1).judged_PG
    algorithm = run.config.algorithm
    lengths_PG = np.array([[len(answer.completion.token_ids) for answer in group] for group in judged_PG])
    rewards_PG = np.array([[answer.verdict.reward for answer in group] for group in judged_PG])
    if algorithm.overlong_buffer_share:
        rewards_PG = rewards_PG + reference_rewards.overlong_punishment(lengths_PG, 20, 10)
    advantages_PG = reference_advantages.advantages(rewards_PG, algorithm.baseline, algorithm.scale, algorithm.std)
    enters_PG = np.array(
        [[answer.completion.is_finished or skip == "false" for answer in group] for group in judged_PG]
    )
    assert len(seen) == 2
    assert len(set(lengths_PG.flat)) > 3

    def expected_of(part: Sequence[int]) -> list[tuple[int, tuple[int, ...], float, float]]:
        entering = [(p, g) for p in part for g in range(6) if enters_PG[p, g]]
        weights = reference_averages.token_weights(np.array([lengths_PG[at] for at in entering]), algorithm.average, 20)
        return sorted(
            (p, tuple(judged_PG[p][g].completion.token_ids), round(advantages_PG[p, g], 9), round(weight, 9))
            for (p, g), weight in zip(entering, weights, strict=True)
            if abs(advantages_PG[p, g]) > 1e-12
        )

    for rows in seen:
        found = sorted(
            (row.group, tuple(row.completion_ids), round(row.advantage, 9), round(row.weight, 9)) for row in rows
        )
        assert found in [expected_of(part) for part in combinations(range(4), 2)]


def test_mini_batches_are_updates_on_some_of_the_questions(grpo) -> None:
    halves = grpo("training.updates_per_rollout=2", "training.questions_per_update=1")
    metrics = halves.step(1).record.metrics
    assert halves.optimizer.num_steps == 2
    assert metrics["forwarded_tokens"] == grpo().step(1).record.metrics["forwarded_tokens"]


def test_weight_zero_loads_no_second_model_and_reports_no_kl(grpo, monkeypatch) -> None:
    """N10."""
    monkeypatch.setattr(kl_module, "load_policy", lambda *a, **k: pytest.fail("a second model was loaded"))
    plain = grpo("algorithm.kl_estimator=k2")
    assert plain.reference is None
    assert "kl_reference" not in plain.step(1).record.metrics


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("place", ["loss", "reward"])
def test_kl_is_zero_at_the_start_and_grows(grpo, place: str, estimator: str) -> None:
    """P01; and it reads the sampled tokens under the frozen start at the sampling temperature."""
    held = grpo(
        "algorithm.kl_weight=0.5",
        f"algorithm.kl_in={place}",
        f"algorithm.kl_estimator={estimator}",
        "algorithm.scale=none",
        "training.temperature=0.7",
    )
    start = held.policy.decoder.embedding.weight.detach().clone()
    first, second = (held.step(step) for step in (1, 2))
    assert first.record.metrics["kl_reference"] == pytest.approx(0.0, abs=1e-9)
    assert second.record.metrics["kl_reference"] > 1e-6
    assert torch.equal(held.reference.decoder.embedding.weight, start)
    assert not torch.equal(held.policy.decoder.embedding.weight, start)
    answers = [answer for group in second.judged_PG for answer in group]
    rows = [TrainRow(0, a.item.prompt_ids, a.completion.token_ids, 0.0) for a in answers]
    with torch.no_grad():
        logprobs_BT, mask_BT = padded_logprobs(held.reference.decoder, rows, 0.7, held.policy.has_token_V)
    found = [logprob for group in held.reference.logprobs(second.judged_PG) for row in group for logprob in row]
    assert found == pytest.approx(logprobs_BT[mask_BT].tolist(), abs=1e-4)


def test_an_answer_without_a_usable_reward_is_in_nothing(grpo) -> None:
    """A08, in a whole step: out of the statistics, the loss and its divisors, also where a KL pulls at every token."""
    run = grpo("algorithm.kl_weight=1")
    verify, calls = run.task.verify, iter(range(100))

    def sometimes(problem: Problem, completion: str, finished: bool = True) -> Verdict:
        verdict = verify(problem, completion, finished)
        return replace(verdict, reward=math.nan) if next(calls) == 1 else verdict

    run.task.verify = sometimes
    metrics = run.step(1).record.metrics
    assert np.isfinite(list(metrics.values())).all()
    unusable = run.step(2).judged_PG
    assert all(np.isfinite(answer.verdict.reward) for group in unusable for answer in group)
    assert metrics["forwarded_tokens"] < metrics["num_tokens"]


def test_old_logprobs_of_a_training_forward(grpo, monkeypatch) -> None:
    """In bf16 the sampler's rounding would enter every ratio; in float32 sampler and trainer agree, and no forward is spent."""
    settings = ("training.updates_per_rollout=2", "training.learning_rate=0")
    spent = []
    original = loop_module.row_logprobs
    monkeypatch.setattr(loop_module, "row_logprobs", lambda *a: spent.append(a[1]) or original(*a))
    kl = {
        (dtype, old): grpo(*settings, f"model.dtype={dtype}", f"algorithm.old_logprobs={old}").step(1).record.metrics
        for dtype in ("float32", "bfloat16")
        for old in ("auto", "sampler", "trainer")
    }
    assert len(spent) == 3
    assert all(row.advantage for rows in spent for row in rows), "only what the updates will forward"
    assert kl["float32", "auto"]["kl_old"] < 1e-9
    assert kl["bfloat16", "auto"]["kl_old"] < 0.01 * kl["bfloat16", "sampler"]["kl_old"]
    assert kl["bfloat16", "auto"]["logprob_gap"] == kl["bfloat16", "sampler"]["logprob_gap"] > 1e-4


def test_a_kl_in_the_loss_teaches_where_advantages_are_zero(grpo) -> None:
    """Rows without an advantage are not forwarded, except when the KL pulls at them."""
    for settings, is_forwarded in (((), False), (("algorithm.kl_weight=1",), True)):
        run = grpo(*settings)
        run.step(1)
        with torch.no_grad():
            for parameter in run.policy.decoder.parameters():
                parameter.mul_(1.05)
        run.task.verify = lambda *a, **k: Verdict(0.5, {"digits": 0.5}, "all alike")
        metrics = run.step(2).record.metrics
        assert metrics["zero_variance_share"] == 1.0
        assert (metrics["forwarded_tokens"] > 0) == (metrics["grad_norm"] > 0) == is_forwarded


def test_a_kl_in_the_reward_is_the_sum_over_the_completion(grpo) -> None:
    run = grpo(
        "algorithm.kl_weight=0.25", "algorithm.kl_in=reward", "algorithm.kl_estimator=k1", "algorithm.scale=none"
    )
    run.step(1)
    done = run.step(2)
    held_PG = run.reference.logprobs(done.judged_PG)
    rewards_PG, facts = shaped_rewards(done.judged_PG, run.config, held_PG)
    for p, group in enumerate(done.judged_PG):
        for g, answer in enumerate(group):
            kl = sum(answer.completion.logprobs) - sum(held_PG[p][g])
            assert rewards_PG[p, g].item() == pytest.approx(answer.verdict.reward - 0.25 * kl)
    assert facts["penalty/kl"] != 0
    assert done.record.metrics["reward"] == pytest.approx(
        np.mean([answer.verdict.reward for group in done.judged_PG for answer in group])
    ), "the metric is the task's"


def test_a_kl_is_in_one_place_only(grpo) -> None:
    for place, scale in (("loss", "group_std"), ("reward", "none")):
        run = grpo("algorithm.kl_weight=0.5", f"algorithm.kl_in={place}", f"algorithm.scale={scale}")
        run.step(1)
        metrics = run.step(2).record.metrics
        assert ("penalty/kl" in metrics) == (place == "reward")
        # Of zero-advantage rows only a KL in the loss has anything to say.
        assert run.config.algorithm.has_kl_loss == (place == "loss")


def test_a_missing_starting_model_is_named(model_folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "model"
    shutil.copytree(model_folder, moved)
    settings = ("algorithm.kl_weight=0.5", "training.max_steps=1", "training.eval_interval=0", "training.run_name=one")
    config = run_config(moved, tmp_path, *settings)
    folder = train(config)
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(
        UserError, match=r"algorithm.kl_weight is 0.5, so the run needs the model it started from: .*model"
    ):
        train(config, folder)


def test_overlong_punishment_is_taken_off_the_reward_alone(grpo) -> None:
    run = grpo("algorithm.overlong_buffer_share=0.5", "training.max_gen_len=8")
    done = run.step(1)
    rewards_PG, facts = shaped_rewards(done.judged_PG, run.config, None)
    for p, group in enumerate(done.judged_PG):
        for g, answer in enumerate(group):
            over = max(0, len(answer.completion.token_ids) - 4) / 4
            assert rewards_PG[p, g].item() == pytest.approx(answer.verdict.reward - over)
    assert done.record.metrics["penalty/overlong"] == facts["penalty/overlong"]
    assert facts["penalty/overlong"] < 0


def test_every_preset_takes_a_step(grpo) -> None:
    for preset in PRESETS:
        run = grpo(f"algorithm={preset}", "training.updates_per_rollout=2", "training.batch_size=16")
        assert np.isfinite(list(run.step(1).record.metrics.values())).all()


def test_a_resumed_run_is_held_to_the_first_policy(model_folder: Path, tmp_path: Path) -> None:
    """Interrupted and resumed equals never interrupted, with a KL, mini-batches and dynamic sampling."""
    settings = (
        "algorithm.kl_weight=0.5",
        "algorithm.dynamic_sampling_rounds=2",
        "training.updates_per_rollout=4",
        "training.questions_per_update=1",
        "training.eval_interval=0",
    )
    whole = train(run_config(model_folder, tmp_path, *settings, "training.run_name=whole"))
    config = run_config(model_folder, tmp_path, *settings, "training.run_name=part", "training.max_steps=2")
    part = train(config)
    train(run_config(model_folder, tmp_path, *settings, "training.run_name=part"), part)
    ends = [
        (folder / "checkpoints" / "step_000004" / "model" / "model.safetensors").read_bytes()
        for folder in (whole, part)
    ]
    assert ends[0] == ends[1]
