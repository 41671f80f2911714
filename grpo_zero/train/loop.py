"""One GRPO step: draw, sample, verify, advantages, loss and update, record."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from grpo_zero.algorithms.advantages import advantages
from grpo_zero.config import Config, TrainingConfig
from grpo_zero.observe.phases import PhaseClock
from grpo_zero.observe.record import StepRecord
from grpo_zero.randomness import stream
from grpo_zero.rollout.engine import Progress
from grpo_zero.tasks import Task
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.budget import Budget
from grpo_zero.train.evaluate import Judged, require_verdicts
from grpo_zero.train.kl_reference import KLReference
from grpo_zero.train.metrics import merge_updates, rollout_metrics, time_metrics, wait
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy, make_engine
from grpo_zero.train.problems import ProblemSource
from grpo_zero.train.rewards import shaped_rewards
from grpo_zero.train.rollout import collect
from grpo_zero.train.rows import mini_batches, train_rows, weigh
from grpo_zero.train.schedule import grpo_learning_rate
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import row_logprobs, update


@dataclass(frozen=True, slots=True)
class Step:
    """What one step leaves behind."""

    record: StepRecord
    judged_PG: list[list[Judged]]
    advantages_PG: np.ndarray
    """NaN for groups that dynamic sampling left out."""


class GRPO:
    """Everything one step needs; the state is in ``policy`` and ``optimizer`` alone."""

    def __init__(
        self,
        config: Config,
        policy: Policy,
        task: Task,
        problems: ProblemSource,
        optimizer: AdamW,
        reference: KLReference | None = None,
    ) -> None:
        self.config, self.policy, self.task = config, policy, task
        self.problems, self.optimizer, self.reference = problems, optimizer, reference
        self.engine = make_engine(policy, config.training)
        self.budget = Budget(config.training)

    def step(self, step: int, progress: Progress | None = None) -> Step:
        """One GRPO step (2402.03300, algorithm 1); ``step`` counts from 1."""
        with PhaseClock(partial(wait, self.policy.decoder.device)).listen() as clock:
            return self._step(step, clock, progress)

    def _step(self, step: int, clock: PhaseClock, progress: Progress | None) -> Step:
        training, algorithm = self.config.training, self.config.algorithm
        times, shortages = [time.perf_counter()], self.num_shortages

        rollout = collect(self.policy, self.engine, self.task, self.problems, self.config, step, progress)
        require_verdicts(rollout.judged_PG, step)
        kept_PG = rollout.kept_PG
        times.append(time.perf_counter())

        reference_logprobs_PG = self.reference.logprobs(kept_PG, self.budget) if self.reference else None
        times.append(time.perf_counter())

        rewards_PG, penalties = shaped_rewards(kept_PG, self.config, reference_logprobs_PG)
        advantages_PG = advantages(rewards_PG, algorithm.baseline, algorithm.scale, algorithm.std).numpy()
        rows = train_rows(kept_PG, advantages_PG, training.skip_unfinished_episodes, reference_logprobs_PG)
        facts = self.learn(rows, step)
        times.append(time.perf_counter())

        metrics = rollout_metrics(rollout.judged_PG) | penalties | rollout.facts | facts
        if self.num_shortages > shortages:
            metrics["out_of_memory"] = self.num_shortages - shortages
        device, has_reference = self.policy.decoder.device, self.reference is not None
        metrics |= time_metrics(times, clock.seconds, metrics, device, has_reference=has_reference)
        all_advantages_PG = np.full((len(rollout.judged_PG), training.num_answers_per_question), np.nan)
        all_advantages_PG[rollout.kept] = advantages_PG
        return Step(StepRecord(step, "train", metrics), rollout.judged_PG, all_advantages_PG)

    def learn(self, rows: list[TrainRow], step: int) -> dict[str, float]:
        """The updates on one rollout. Rows that teach nothing are not forwarded, but count in every divisor."""
        training, algorithm = self.config.training, self.config.algorithm
        learning_rate = grpo_learning_rate(step, training)
        if training.updates_per_rollout > 1 and self.recomputes_old_logprobs:
            old = iter(self.trainer_logprobs([*filter(self.teaches, rows)]))
            rows = [replace(row, old_logprobs=next(old)) if self.teaches(row) else row for row in rows]
        num_steps_before, facts = self.optimizer.num_steps, []
        parts = mini_batches(rows, training.num_passes, training.part_size, training.random_seed, step)
        for index, part in enumerate(parts):
            weighed = weigh(part, algorithm.average, training.max_gen_len)
            is_on_policy = self.optimizer.num_steps == num_steps_before
            loss = GRPOLoss(algorithm=algorithm, is_on_policy=is_on_policy)
            taught = [*filter(self.teaches, weighed)]
            facts.append(self.update(taught, loss, learning_rate, (step, index)))
        return merge_updates(facts) | {"learning_rate": learning_rate}

    def update(
        self, rows: list[TrainRow], loss: GRPOLoss, learning_rate: float, place: tuple[int, int]
    ) -> dict[str, float]:
        """One update, begun again with smaller micro-batches where memory runs out; ``place`` is its step and its number."""

        def work(training: TrainingConfig) -> dict[str, float]:
            if self.policy.decoder.has_dropout:
                torch.manual_seed(int(stream(training.random_seed, "dropout", *place).integers(2**62)))
            return update(self.policy, self.optimizer, rows, loss, learning_rate, training, training.temperature)

        return self.budget.attempt(work, rows, "the update", self.optimizer)

    def trainer_logprobs(self, rows: list[TrainRow]) -> list[list[float]]:
        """Log-probs (nats) of each row's completion in a training forward of the policy, without dropout."""
        decoder, has_token_V = self.policy.decoder, self.policy.has_token_V
        return self.budget.attempt(
            lambda training: row_logprobs(decoder, rows, training, has_token_V), rows, "a forward for old log-probs"
        )

    @property
    def num_shortages(self) -> int:
        """Times so far that memory ran out and something was begun again with less."""
        return self.budget.num_shortages + self.engine.num_shortages

    @property
    def sizes(self) -> TrainingConfig:
        """The training section with what shortages have lowered."""
        return replace(self.budget.training, num_slots=self.engine.num_slots)

    def teaches(self, row: TrainRow) -> bool:
        """Whether the row has a gradient: an advantage, or a KL that pulls at every token."""
        return row.advantage != 0.0 or self.config.algorithm.has_kl_loss

    @property
    def recomputes_old_logprobs(self) -> bool:
        """``algorithm.old_logprobs``, with ``auto`` resolved by the precision of the weights."""
        setting = self.config.algorithm.old_logprobs
        is_half = self.policy.decoder.embedding.weight.dtype == torch.bfloat16
        return is_half if setting == "auto" else setting == "trainer"
