"""Dynamic sampling: which groups are kept, how often it draws, and what it does when it finds too few."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.runs import run_config

from grpo_zero.train.loop import GRPO, Step
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.policy import load_policy
from grpo_zero.train.problems import ProblemSource
from grpo_zero.types import Problem, Verdict

SETTINGS = ("training.num_questions_per_batch=3", "training.batch_size=12", "training.max_gen_len=5")


class FixedTask:
    """Question i is answered all right, all wrong, or alternately, as ``kinds[i]`` says: ``r``, ``w``, ``m``."""

    name = "fixed"

    def __init__(self, kinds: str) -> None:
        self.kinds, self.calls = kinds, 0

    def problem(self, row: Mapping[str, Any]) -> Problem:
        return Problem(({"role": "user", "content": str(row["index"])},), "", row, str(row["index"]))

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        self.calls += 1
        right = {"r": True, "w": False, "m": self.calls % 2 == 0}[self.kinds[problem.row["index"]]]
        # The reward differs within every group, so that only rightness can be what is filtered by.
        return Verdict(right + self.calls % 3 / 10, {"answer": float(right)}, "", correct=right)


def make(model_folder: Path, kinds: str, *settings: str) -> GRPO:
    config = run_config(model_folder, Path("unused"), "data.task=countdown", *SETTINGS, *settings)
    policy = load_policy(config.model, init_seed=0)
    task = FixedTask(kinds)
    problems = ProblemSource(task, policy, [{"index": i} for i in range(len(kinds))], 40, "training")
    return GRPO(config, policy, task, problems, make_optimizer(policy.decoder, config.training))


def kept_groups(done: Step) -> list[str]:
    return [
        group[0].item.problem.key
        for group, advantages in zip(done.judged_PG, done.advantages_PG, strict=True)
        if not np.isnan(advantages).any()
    ]


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_only_mixed_groups_are_trained_on(model_folder: Path, rounds: int) -> None:
    kinds = "rmwmrmwmrmwm"
    grpo = make(model_folder, kinds, f"algorithm.dynamic_sampling_rounds={rounds}")
    generate, keys_used = grpo.engine.generate, []
    grpo.engine.generate = lambda *a, **k: keys_used.append(k["seed_key"]) or generate(*a, **k)
    done = grpo.step(1)
    assert len(set(keys_used)) == done.record.metrics["sampling_rounds"], "every round has noise of its own"
    metrics = done.record.metrics
    keys = [group[0].item.problem.key for group in done.judged_PG]
    assert len(keys) == len(set(keys)) == 3 * metrics["sampling_rounds"], "no question twice in a step"
    mixed = [key for key in keys if kinds[int(key)] == "m"]
    assert kept_groups(done) == mixed[:3]
    assert metrics["kept_share"] == len(mixed[:3]) / 3
    assert metrics["sampling_rounds"] <= rounds
    if metrics["sampling_rounds"] < rounds:
        assert metrics["kept_share"] == 1.0
    assert metrics["success"] == np.mean([answer.verdict.correct for group in done.judged_PG for answer in group])


def test_more_than_enough_is_cut_to_the_batch(model_folder: Path) -> None:
    """One dead question among six: a step that draws it takes a second round, whose surplus is left out."""
    grpo = make(model_folder, "rmmmmm", "algorithm.dynamic_sampling_rounds=2")
    done = next(done for step in range(1, 9) if (done := grpo.step(step)).record.metrics["sampling_rounds"] == 2)
    assert len(done.judged_PG) == 6
    assert len(kept_groups(done)) == 3
    assert done.record.metrics["kept_share"] == 1.0


def test_rounds_are_bounded_and_the_step_makes_do(model_folder: Path) -> None:
    """R06: too hard and too easy: two rounds, then one question out of three, and the record says so."""
    grpo = make(model_folder, "wrwrwm", "algorithm.dynamic_sampling_rounds=2")
    metrics = grpo.step(1).record.metrics
    assert metrics["sampling_rounds"] == 2
    assert metrics["kept_share"] == pytest.approx(1 / 3)
    assert metrics["grad_norm"] > 0
    assert metrics["num_tokens"] > metrics["forwarded_tokens"] > 0


def test_nothing_mixed_means_no_step_and_loss_zero(model_folder: Path) -> None:
    grpo = make(model_folder, "wrwrwr", "algorithm.dynamic_sampling_rounds=5", "training.updates_per_rollout=3")
    before = grpo.policy.decoder.embedding.weight.detach().clone()
    done = grpo.step(1)
    metrics = done.record.metrics
    assert (metrics["loss"], metrics["grad_norm"], metrics["forwarded_tokens"]) == (0.0, 0.0, 0)
    assert metrics["kept_share"] == 0.0
    assert metrics["sampling_rounds"] == 2, "six questions are two rounds of three; then there are no more"
    assert grpo.optimizer.num_steps == 0
    assert (grpo.policy.decoder.embedding.weight == before).all()
    assert np.isnan(done.advantages_PG).all()


def test_switched_off_it_trains_on_everything_and_reports_nothing(model_folder: Path) -> None:
    done = make(model_folder, "wrmwrm").step(1)
    assert len(done.judged_PG) == 3
    assert "sampling_rounds" not in done.record.metrics
    assert not np.isnan(done.advantages_PG).any()


def test_the_first_round_is_the_one_without_dynamic_sampling(model_folder: Path) -> None:
    """Same questions, same noise; later rounds are a function of seed and step alone."""
    plain = make(model_folder, "rmwmrmwm").step(2).judged_PG
    twice = [make(model_folder, "rmwmrmwm", "algorithm.dynamic_sampling_rounds=3").step(2).judged_PG for _ in range(2)]
    tokens = [[[a.completion.token_ids for a in group] for group in judged] for judged in (plain, *twice)]
    assert tokens[1][:3] == tokens[0]
    assert tokens[1] == tokens[2]
