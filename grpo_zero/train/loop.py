"""One GRPO step: draw, sample, verify, advantages, loss and update, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grpo_zero.algorithms.advantages import group_advantages
from grpo_zero.config import Config
from grpo_zero.observe.record import StepRecord
from grpo_zero.rollout.engine import Engine, Progress
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.tasks import Task
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.evaluate import Judged, judge
from grpo_zero.train.metrics import rollout_metrics, time_metrics
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy
from grpo_zero.train.problems import ProblemSource
from grpo_zero.train.schedule import grpo_learning_rate
from grpo_zero.train.update import update


@dataclass(frozen=True, slots=True)
class Step:
    """What one step leaves behind."""

    record: StepRecord
    judged_PG: list[list[Judged]]
    advantages_PG: np.ndarray


class GRPO:
    """Everything one step needs; the state is in ``policy`` and ``optimizer`` alone."""

    def __init__(self, config: Config, policy: Policy, task: Task, problems: ProblemSource, optimizer: AdamW) -> None:
        self.config, self.policy, self.task = config, policy, task
        self.problems, self.optimizer = problems, optimizer
        training = config.training
        self.engine = Engine(policy.decoder, policy.tokenizer.stop_ids, policy.has_token_V, training.num_slots)
        self.sampling = SamplingParams(training.max_gen_len, training.temperature)

    def step(self, step: int, progress: Progress | None = None) -> Step:
        """One GRPO step (2402.03300, algorithm 1, with one update per rollout); ``step`` counts from 1."""
        training = self.config.training
        times = [time.perf_counter()]

        items = self.problems.draw(training.random_seed, step, training.num_questions_per_batch)
        completions_PG = self.engine.generate(
            [item.prompt_ids for item in items],
            training.num_answers_per_question,
            self.sampling,
            seed_key=(training.random_seed, "sample", step),
            policy_step=step - 1,
            progress=progress,
        )
        times.append(time.perf_counter())

        judged_PG = judge(self.policy, self.task, items, completions_PG)
        rewards_PG = np.array([[answer.verdict.reward for answer in group] for group in judged_PG])
        advantages_PG = group_advantages(rewards_PG)
        rows = train_rows(judged_PG, advantages_PG, training.skip_unfinished_episodes)
        times.append(time.perf_counter())

        learning_rate = grpo_learning_rate(step, training)
        facts = update(
            self.policy,
            self.optimizer,
            rows,
            num_trained_tokens=sum(len(row.completion_ids) for row in rows),
            learning_rate=learning_rate,
            config=training,
            temperature=training.temperature,
        )
        times.append(time.perf_counter())

        metrics = rollout_metrics(judged_PG, rewards_PG) | facts | {"learning_rate": learning_rate}
        metrics |= time_metrics(times, metrics, self.policy.decoder.device)
        return Step(StepRecord(step, "train", metrics), judged_PG, advantages_PG)


def train_rows(
    judged_PG: Sequence[Sequence[Judged]], advantages_PG: np.ndarray, skip_unfinished: bool
) -> list[TrainRow]:
    """The completions that enter the loss, group by group.

    ``skip_unfinished`` leaves out completions cut by the length limit: after the advantages were formed over the full group,
    and from the normaliser too.
    """
    return [
        TrainRow(p, answer.item.prompt_ids, answer.completion.token_ids, float(advantage), answer.completion.logprobs)
        for p, (group, advantages_G) in enumerate(zip(judged_PG, advantages_PG, strict=True))
        for answer, advantage in zip(group, advantages_G, strict=True)
        if answer.completion.is_finished or not skip_unfinished
    ]
