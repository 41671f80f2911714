"""From judged answers to training rows: which enter the loss, with which weights, in which update."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from grpo_zero.algorithms.averages import token_weights
from grpo_zero.randomness import stream
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.evaluate import Judged


def train_rows(
    judged_PG: Sequence[Sequence[Judged]],
    advantages_PG: np.ndarray,
    skip_unfinished: bool,
    reference_logprobs_PG: Sequence[Sequence[Sequence[float]]] | None = None,
) -> list[TrainRow]:
    """The completions that enter the loss, group by group.

    ``skip_unfinished`` leaves out completions cut by the length limit: after the advantages were formed over the full group,
    and from every divisor of the loss too. So is a completion without a usable reward (NaN).
    """
    return [
        TrainRow(
            p,
            answer.item.prompt_ids,
            answer.completion.token_ids,
            float(advantages_PG[p, g]),
            answer.completion.logprobs,
            reference_logprobs=None if reference_logprobs_PG is None else reference_logprobs_PG[p][g],
        )
        for p, group in enumerate(judged_PG)
        for g, answer in enumerate(group)
        if (answer.completion.is_finished or not skip_unfinished) and not math.isnan(answer.verdict.reward)
    ]


def weigh(rows: Sequence[TrainRow], average: str, max_length: int) -> list[TrainRow]:
    """The rows of one update with their tokens' weights (``algorithms.averages.token_weights``)."""
    lengths_B = torch.tensor([len(row.completion_ids) for row in rows])
    weights = token_weights(lengths_B, average, max_length).tolist()
    return [replace(row, weight=weight) for row, weight in zip(rows, weights, strict=True)]


def mini_batches(
    rows: Sequence[TrainRow], num_passes: int, questions_per_update: int, seed: int, step: int
) -> Iterator[list[TrainRow]]:
    """The rows of each update on one rollout: pass after pass over its questions, in parts of equal size (but for one).

    A part has at most ``questions_per_update`` questions, so a rollout with few of them left takes fewer updates. Questions stay
    whole. Each pass has an order of its own (purpose ``mini_batch``); a pass of one part keeps the order of the rows.
    """
    groups = sorted({row.group for row in rows})
    num_parts = -(-len(groups) // questions_per_update)
    for pass_index in range(num_passes):
        order = stream(seed, "mini_batch", step, pass_index).permutation(groups)
        for part in np.array_split(order, num_parts) if num_parts else ():
            chosen = set(part.tolist())
            yield [row for row in rows if row.group in chosen]
