"""Draw, sample, verify: once a step, or in several rounds until enough questions have right and wrong answers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch

from grpo_zero.algorithms.groups import is_mixed
from grpo_zero.config import Config
from grpo_zero.rollout.engine import Engine, Progress
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.tasks import Task
from grpo_zero.train.evaluate import Judged, judge
from grpo_zero.train.policy import Policy
from grpo_zero.train.problems import ProblemSource


@dataclass(slots=True)
class Rollout:
    """The answers of one step."""

    judged_PG: list[list[Judged]] = field(default_factory=list)
    """Every group that was sampled."""
    kept: list[int] = field(default_factory=list)
    """Which of them are to be trained on; all of them without dynamic sampling."""
    facts: dict[str, float] = field(default_factory=dict)
    """``sample_s``; with dynamic sampling also ``sampling_rounds`` and ``kept_share``."""

    @property
    def kept_PG(self) -> list[list[Judged]]:
        """The groups to be trained on."""
        return [self.judged_PG[index] for index in self.kept]


def collect(
    policy: Policy,
    engine: Engine,
    task: Task,
    problems: ProblemSource,
    config: Config,
    step: int,
    progress: Progress | None = None,
) -> Rollout:
    """Sample and judge the groups of a step.

    With ``dynamic_sampling_rounds`` only groups with right and wrong answers are kept, and further questions are drawn until
    ``num_questions_per_batch`` groups are full or the rounds are used up: then the step makes do with what there is (DAPO,
    2503.14476, section 3.2, which draws without a bound).
    """
    training, num_rounds = config.training, config.algorithm.dynamic_sampling_rounds
    wanted = training.num_questions_per_batch
    params = SamplingParams(training.max_gen_len, training.temperature)
    rollout = Rollout(facts={"sample_s": 0.0})
    for round_index in range(max(1, num_rounds)):
        seen = {group[0].item.problem.key for group in rollout.judged_PG}
        items = problems.draw(training.random_seed, step, wanted, round_index, seen)
        if not items:
            break
        started = time.perf_counter()
        completions_PG = engine.generate(
            [item.prompt_ids for item in items],
            training.num_answers_per_question,
            params,
            seed_key=(training.random_seed, f"sample_{round_index}" if round_index else "sample", step),
            policy_step=step - 1,
            progress=progress,
        )
        rollout.facts["sample_s"] += time.perf_counter() - started
        rollout.judged_PG += judge(policy, task, items, completions_PG)
        if not num_rounds:
            rollout.kept = list(range(len(items)))
            break
        correct_PG = torch.tensor([[answer.verdict.correct for answer in group] for group in rollout.judged_PG])
        rollout.kept = np.flatnonzero(is_mixed(correct_PG).numpy())[:wanted].tolist()
        rollout.facts |= {"sampling_rounds": round_index + 1, "kept_share": len(rollout.kept) / wanted}
        if len(rollout.kept) == wanted:
            break
    return rollout
