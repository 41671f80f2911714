"""One GRPO step by phases, with random rewards: the trainer's own stages under a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from grpo_zero.algorithms.advantages import advantages
from grpo_zero.bench.floors import Group
from grpo_zero.bench.workloads import problem_rows
from grpo_zero.config import Config
from grpo_zero.model.attention import shared_length
from grpo_zero.observe.memory import PeakMemory, process_peak
from grpo_zero.observe.phases import PhaseClock
from grpo_zero.plan.job import job_of
from grpo_zero.plan.phases import Choice, planned_bytes
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.evaluate import judge
from grpo_zero.train.metrics import wait
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.policy import load_policy, make_engine, set_recompute, set_reuse
from grpo_zero.train.problems import Prompted, make_task
from grpo_zero.train.rows import train_rows, weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

PHASES = ("prefill", "decode", "verify", "update", "optimizer")


@dataclass(frozen=True, slots=True)
class Measured:
    """One step: seconds and peak by phase, and what it worked on."""

    seconds: dict[str, float]
    peak_bytes: dict[str, int]
    """Empty where the system does not tell."""
    groups: list[Group]


class Bench:
    """A policy at a workload's step.

    Args:
        config: of ``workload_config``.

    Raises:
        UserError: no such model or device.
    """

    def __init__(self, config: Config) -> None:
        self.config, training = config, config.training
        set_reuse(training)
        self.policy = load_policy(config.model, init_seed=0)
        self.device = self.policy.decoder.device
        set_recompute(self.policy.decoder, training)
        self.optimizer = make_optimizer(self.policy.decoder, training)
        self.engine = make_engine(self.policy, training)
        if config.model.random_init:
            self.engine.stop_ids = frozenset()
        self.task = make_task(config)
        problems = [self.task.problem(row) for row in problem_rows(training.num_questions_per_batch)]
        self.items = [Prompted(problem, self.policy.prompt_ids(problem)) for problem in problems]

    def step(self, step: int) -> Measured:
        """Sample, verify, learn from random rewards."""
        training = self.config.training
        clock = PhaseClock(partial(wait, self.device), self._memory())
        with clock.listen(), clock.run("other"):
            completions_PG = self.engine.generate(
                [item.prompt_ids for item in self.items],
                training.num_answers_per_question,
                SamplingParams(training.max_gen_len, training.temperature),
                seed_key=(0, "bench", step),
            )
            judged_PG = judge(self.policy, self.task, self.items, completions_PG)
            shape = len(self.items), training.num_answers_per_question
            rewards_PG = torch.from_numpy(np.random.default_rng(step).random(shape))
            rows = train_rows(judged_PG, advantages(rewards_PG).numpy(), training.skip_unfinished_episodes)
            loss = GRPOLoss(algorithm=self.config.algorithm, is_on_policy=True)
            weighed = weigh(rows, self.config.algorithm.average, training.max_gen_len)
            update(self.policy, self.optimizer, weighed, loss, training.learning_rate, training, training.temperature)
        shared = shared_length([item.prompt_ids for item in self.items])
        groups = [
            Group(len(item.prompt_ids), [len(completion.token_ids) for completion in group], shared if i else 0)
            for i, (item, group) in enumerate(zip(self.items, completions_PG, strict=True))
        ]
        return Measured(dict(clock.seconds), dict(clock.peak_bytes), groups)

    def planned_bytes(self) -> int:
        """Peak by ``grpo_zero/plan``, for these prompts and without evaluation."""
        training = self.config.training
        longest = max(len(item.prompt_ids) for item in self.items)
        sizes = replace(training, max_prompt_len=longest, eval_interval=0)
        job = job_of(replace(self.config, training=sizes), self.policy.decoder.spec, self.device.type)
        choice = Choice(
            self.policy.decoder.recompute,
            training.memory_efficient_adamw,
            min(training.num_slots or training.batch_size, training.batch_size),
            training.micro_batch_tokens,
            training.head_chunk_tokens,
        )
        return planned_bytes(job, choice)

    def _memory(self) -> PeakMemory | None:
        return CudaPeak(self.device) if self.device.type == "cuda" else process_peak()


class CudaPeak:
    """Memory that tensors take on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.read = partial(torch.cuda.max_memory_allocated, device)
        self.reset = partial(torch.cuda.reset_peak_memory_stats, device)
