"""The batch that a run stopped at, as JSON for inspection, and what there is to see in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from grpo_zero.observe.files import finite
from grpo_zero.observe.record import StepRecord
from grpo_zero.text.tokenizer import Tokenizer
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.budget import Budget
from grpo_zero.train.evaluate import flatten
from grpo_zero.train.loop import GRPO, Step
from grpo_zero.train.policy import Policy
from grpo_zero.train.update import row_logprobs


@dataclass(frozen=True, slots=True)
class BadBatch:
    """The completions of a step whose update was skipped, and the state they met."""

    step: int
    rows: Sequence[TrainRow]
    """All answers of the step, or its demonstrations; an advantage is NaN where dynamic sampling left the group out."""
    rewards: Sequence[float] | None
    """One a row; None for demonstrations."""
    logprobs: Sequence[Sequence[float]]
    """The trainer's, of each row's completion, taken after the step and without dropout."""
    metrics: Mapping[str, float]
    broken_weights: Sequence[str]
    """Names of parameters that hold NaN or infinity."""

    @property
    def finding(self) -> str:
        """The first thing that is wrong on the way from weights to gradient, with what to try."""
        numbers = [logprob for row in self.logprobs for logprob in row]
        num_broken = sum(not math.isfinite(number) for number in numbers)
        if self.broken_weights:
            return (
                f"{len(self.broken_weights)} of the weights' tensors hold NaN or infinity, {self.broken_weights[0]} first: start "
                "from an earlier checkpoint or download the model again"
            )
        if any(map(math.isinf, self.rewards or ())):
            return "the task gave infinite rewards: mend it"
        if num_broken:
            return (
                f"the log-probs of {num_broken} of {len(numbers)} tokens are not finite, so the forward overflows: try "
                "model.dtype=float32, or start from an earlier checkpoint with a lower training.learning_rate"
            )
        return (
            "all log-probs are finite, so the backward overflows: start from an earlier checkpoint with a lower "
            "training.learning_rate, or try model.dtype=float32"
        )

    def write(self, folder: Path, tokenizer: Tokenizer) -> Path:
        """Write ``bad_batch_step_000012.json``, a row a line; numbers that JSON lacks are null, the loss and the norm text."""
        path = folder / f"bad_batch_step_{self.step:06d}.json"
        rewards: Sequence[float | None] = self.rewards if self.rewards is not None else [None] * len(self.rows)
        head = {
            "step": self.step,
            "finding": self.finding,
            "loss": f"{self.metrics['loss']:g}",
            "grad_norm": f"{self.metrics['grad_norm']:g}",
            "weights_not_finite": list(self.broken_weights),
        }
        rows = [
            json.dumps(finite(_row(row, reward, logprobs, tokenizer)), ensure_ascii=False, allow_nan=False)
            for row, reward, logprobs in zip(self.rows, rewards, self.logprobs, strict=True)
        ]
        text = json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}")
        path.write_text(text + ',\n "rows": [\n' + ",\n".join(rows) + "\n]}\n", encoding="utf-8")
        return path


def bad_answers(grpo: GRPO, done: Step) -> BadBatch:
    """The answers of a step that was skipped."""
    answers, group_size = list(flatten(done.judged_PG)), grpo.config.training.num_answers_per_question
    rows = [
        TrainRow(
            index // group_size, a.item.prompt_ids, a.completion.token_ids, float(advantage), a.completion.logprobs
        )
        for index, (a, advantage) in enumerate(zip(answers, done.advantages_PG.flat, strict=True))
    ]
    rewards, broken = [answer.verdict.reward for answer in answers], broken_weights(grpo.policy.decoder)
    return BadBatch(done.record.step, rows, rewards, grpo.trainer_logprobs(rows), done.record.metrics, broken)


def bad_demonstrations(policy: Policy, rows: Sequence[TrainRow], record: StepRecord, budget: Budget) -> BadBatch:
    """The demonstrations of a step that was skipped."""
    logprobs = budget.attempt(
        lambda training: row_logprobs(policy.decoder, rows, training, policy.has_token_V), rows, "a forward"
    )
    return BadBatch(record.step, rows, None, logprobs, record.metrics, broken_weights(policy.decoder))


def broken_weights(decoder: nn.Module) -> list[str]:
    """Names of the parameters that hold NaN or infinity; needs no memory of a parameter's size."""
    return [
        name for name, x in decoder.named_parameters() if not torch.stack(x.detach().aminmax()).isfinite().all().item()
    ]


def _row(row: TrainRow, reward: float | None, logprobs: Sequence[float], tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "group": row.group,
        "prompt": tokenizer.decode(list(row.prompt_ids)),
        "completion": tokenizer.decode(list(row.completion_ids)),
        "reward": reward,
        "advantage": row.advantage,
        "prompt_ids": list(row.prompt_ids),
        "completion_ids": list(row.completion_ids),
        "sampled_logprobs": None if row.sampled_logprobs is None else list(row.sampled_logprobs),
        "trainer_logprobs": list(logprobs),
        "tokens_not_finite": [place for place, logprob in enumerate(logprobs) if not math.isfinite(logprob)],
    }
