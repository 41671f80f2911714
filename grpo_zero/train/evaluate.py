"""Held-out success: sampled and greedy, each with its 95 % interval. Never moves training's randomness."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grpo_zero.allocator import give_back_freed_memory
from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.observe.intervals import success_interval
from grpo_zero.observe.phases import phase
from grpo_zero.rollout.engine import Engine, Progress
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.tasks import Task
from grpo_zero.tasks.judging import judge_groups
from grpo_zero.train.policy import Policy
from grpo_zero.train.problems import Prompted
from grpo_zero.types import Completion, Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer, its text and what the task said of it."""

    item: Prompted
    completion: Completion
    text: str
    verdict: Verdict


@phase("verify")
def judge(
    policy: Policy, task: Task, items: Sequence[Prompted], completions_PG: Sequence[Sequence[Completion]]
) -> list[list[Judged]]:
    """Verify every completion; a task sees generated text alone."""
    texts_PG = [[policy.text(completion) for completion in group] for group in completions_PG]
    groups = [
        (item.problem, [(text, c.is_finished) for c, text in zip(completions, texts, strict=True)])
        for item, completions, texts in zip(items, completions_PG, texts_PG, strict=True)
    ]
    verdicts_PG = judge_groups(task, groups)
    return [
        [Judged(item, *answer) for answer in zip(completions, texts, verdicts, strict=True)]
        for item, completions, texts, verdicts in zip(items, completions_PG, texts_PG, verdicts_PG, strict=True)
    ]


MOST_FAILED = 0.5
"""Share of answers without a verdict above which a run stops."""


def require_verdicts(judged_PG: Sequence[Sequence[Judged]], step: int) -> None:
    """Raises ``UserError`` where the program that judges failed on too many answers of a step."""
    failed = [answer for answer in flatten(judged_PG) if answer.verdict.failed]
    total = sum(map(len, judged_PG))
    if len(failed) > MOST_FAILED * total:
        raise UserError(
            f"Verification failed on {len(failed)} of the {total} answers of step {step}, the last with: "
            f"{failed[-1].verdict.reason}; `grpo-zero check-task` shows more: mend the task and go on with --resume."
        )


def flatten(judged_PG: Sequence[Sequence[Judged]]) -> Iterator[Judged]:
    """Row by row, prompt by prompt."""
    for group in judged_PG:
        yield from group


def verdict_means(prefix: str, verdicts: Sequence[Verdict]) -> dict[str, float]:
    """``reward/<part>`` and ``note/<part>``, each over the verdicts that have it."""
    means: dict[str, float] = {}
    for kind, values_B in (("reward", [v.parts for v in verdicts]), ("note", [v.notes for v in verdicts])):
        for name in dict.fromkeys(name for values in values_B for name in values):
            means[f"{prefix}{kind}/{name}"] = _mean([values[name] for values in values_B if name in values])
    return means


def _mean(values: Sequence[float]) -> float:
    """Over those that are numbers; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def evaluate(
    policy: Policy,
    engine: Engine,
    task: Task,
    items: Sequence[Prompted],
    config: Config,
    progress: Progress | None = None,
) -> tuple[dict[str, float], list[list[Judged]]]:
    """Success on held-out problems.

    Every evaluation of a run draws the same noise (purpose ``eval``), so differences between evaluations are the policy's.

    Returns:
        Metrics ``eval/...`` of the catalogue, and the sampled answers ``[P][K]``.
    """
    started = time.perf_counter()
    judged_PK, greedy_P1 = answer_all(policy, engine, task, items, config, progress)
    metrics: dict[str, float] = {}
    metrics |= _success("eval/success", judged_PK)
    rows = list(flatten(judged_PK))
    metrics["eval/length"] = float(np.mean([len(row.completion.token_ids) for row in rows]))
    metrics["eval/truncated_share"] = float(np.mean([not row.completion.is_finished for row in rows]))
    metrics["eval/num_problems"] = len(items)
    metrics |= verdict_means("eval/", [row.verdict for row in rows])
    metrics["eval/reward"] = _mean([row.verdict.reward for row in rows])
    if greedy_P1:
        metrics |= _success("eval/greedy_success", greedy_P1)
    metrics["eval/eval_s"] = time.perf_counter() - started
    return metrics, judged_PK


def answer_all(
    policy: Policy,
    engine: Engine,
    task: Task,
    items: Sequence[Prompted],
    config: Config,
    progress: Progress | None = None,
) -> tuple[list[list[Judged]], list[list[Judged]]]:
    """The sampled answers ``[P][K]`` and the greedy ones ``[P][1]``, which are none without ``evaluation.greedy``."""
    settings, seed = config.evaluation, config.training.random_seed
    sampling = SamplingParams(config.evaluation_gen_len, settings.temperature, settings.top_k or None, settings.top_p)
    prompts = [item.prompt_ids for item in items]

    def answers(params: SamplingParams, num_samples: int) -> list[list[Judged]]:
        give_back_freed_memory()  # other sizes than those of a step, whose holes do not fit
        completions_PG = engine.generate(prompts, num_samples, params, seed_key=(seed, "eval", 0), progress=progress)
        give_back_freed_memory()
        return judge(policy, task, items, completions_PG)

    sampled_PK = answers(sampling, settings.samples_per_problem)
    greedy_P1 = answers(replace(sampling, temperature=0.0, top_k=None, top_p=1.0), 1) if settings.greedy else []
    return sampled_PK, greedy_P1


def _success(name: str, judged_PK: Sequence[Sequence[Judged]]) -> dict[str, float]:
    mean, low, high = success_interval(np.array([[row.verdict.correct for row in group] for group in judged_PK]))
    return {name: mean, f"{name}_low": low, f"{name}_high": high}
