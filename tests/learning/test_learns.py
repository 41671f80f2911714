"""And it learns: the whole GRPO step on tasks a tiny random model masters within seconds on one core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.runs import run_config

from grpo_zero.presets import PRESETS
from grpo_zero.train.loop import GRPO
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.policy import load_policy
from grpo_zero.train.problems import ProblemSource
from grpo_zero.types import Problem, Verdict


class ShareTask:
    """Paid is the share of one character in the answer of 6 tokens, 12 characters at most; which one, the question says."""

    name = "share"

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def problem(self, row: Mapping[str, Any]) -> Problem:
        character = self.wanted[row["index"] % len(self.wanted)]
        return Problem(({"role": "user", "content": character},), "", {"wanted": character}, character)

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        reward = completion.count(problem.row["wanted"]) / 12
        return Verdict(reward, {"share": reward}, "", correct=reward > 0.4)


def rewards_of_a_run(
    model_folder: Path, task: ShareTask, num_steps: int, *settings: str, flip: float = 1.0
) -> list[float]:
    """Mean reward of each step. ``flip`` -1 trains away from the reward."""
    config = run_config(
        model_folder,
        Path("unused"),
        "data.task=countdown",
        "training.num_questions_per_batch=4",
        "training.batch_size=64",
        "training.max_gen_len=6",
        "training.learning_rate=0.01",
        *settings,
    )
    policy = load_policy(config.model, init_seed=0)
    verify = task.verify

    def flipped(problem: Problem, completion: str, finished: bool = True) -> Verdict:
        verdict = verify(problem, completion, finished)
        return replace(verdict, reward=flip * verdict.reward, parts={"share": flip * verdict.reward})

    task.verify = flipped
    problems = ProblemSource(task, policy, [{"index": index} for index in range(8)], 40, "training")
    grpo = GRPO(config, policy, task, problems, make_optimizer(policy.decoder, config.training))
    return [flip * grpo.step(step).record.metrics["reward"] for step in range(1, num_steps + 1)]


def test_reward_rises(model_folder: Path) -> None:
    rewards = rewards_of_a_run(model_folder, ShareTask("7"), 40)
    assert np.mean(rewards[:3]) < 0.1
    assert np.mean(rewards[-3:]) > 0.8


def test_the_sign_is_right(model_folder: Path) -> None:
    """Paid for the contrary, it unlearns: the rise above is not drift."""
    rewards = rewards_of_a_run(model_folder, ShareTask("e"), 20, flip=-1.0)
    assert np.mean(rewards[-3:]) <= np.mean(rewards[:3])


def test_learns_to_answer_the_question_that_was_asked(model_folder: Path) -> None:
    """Two questions with opposite answers in every batch: a mix-up of groups or prompts can't pass."""
    rewards = rewards_of_a_run(model_folder, ShareTask("73"), 50)
    assert np.mean(rewards[:3]) < 0.1
    assert np.mean(rewards[-3:]) > 0.8, "an answer that does not heed the question gets 0.5 at most"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_learns_with_two_updates_a_rollout(model_folder: Path, preset: str) -> None:
    """Dynamic sampling is off: at first no answer of this task is right enough to be called so."""
    updates = ("training.updates_per_rollout=2", "training.questions_per_update=2")
    settings = (f"algorithm={preset}", "algorithm.dynamic_sampling_rounds=0", *updates)
    rewards = rewards_of_a_run(model_folder, ShareTask("7"), 20, *settings)
    assert np.mean(rewards[:2]) < 0.1
    assert np.mean(rewards[-3:]) > 0.4


@pytest.mark.parametrize("settings", [["training.micro_batch_size=3"], ["training.memory_efficient_adamw=true"]])
def test_memory_settings_leave_the_curve_alone(model_folder: Path, settings: list[str]) -> None:
    plain = rewards_of_a_run(model_folder, ShareTask("7"), 8)
    assert rewards_of_a_run(model_folder, ShareTask("7"), 8, *settings) == pytest.approx(plain, abs=0.02)
