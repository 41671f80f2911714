"""Packing: rows (prompt, completion, advantage) into streams without padding, prompts shared, by token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.attention import GroupLayout, PackedGroups, packed_positions, shared_length

MAX_PADDING = 2
"""One long completion among many short ones would make attention's rectangle, and its mask, many times the stream."""


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One completion to learn from."""

    group: int
    """Rows of the same group have the same prompt and share its computation."""
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    advantage: float
    """How much better it is than its group; the same for each of its tokens."""
    sampled_logprobs: Sequence[float] | None = None
    """Log-probs (nats) the sampler reported."""
    weight: float = 1.0
    """Weight of each of its tokens in the loss, over the whole update (``algorithms/averages.py``)."""
    old_logprobs: Sequence[float] | None = None
    """Log-probs (nats) of the same weights in a training forward, where ratios are to be taken against them."""
    reference_logprobs: Sequence[float] | None = None
    """Log-probs (nats) under the policy to stay near; all rows of an update have them or none."""


@dataclass(frozen=True, slots=True)
class CompletionTokens:
    """What the loss has to know of each completion token, completion after completion."""

    targets_C: Tensor
    """int64: token ids."""
    advantages_C: Tensor
    """float32: advantage of its completion."""
    weights_C: Tensor
    """float32: weight in the loss."""
    row_C: Tensor
    """int64: which completion of the micro-batch it belongs to."""
    sampled_logprobs_C: Tensor
    """float32: the sampler's log-probs, NaN where not known."""
    old_logprobs_C: Tensor
    """float32: the old log-probs of importance ratios: of a training forward where there was one, else the sampler's."""
    reference_logprobs_C: Tensor | None
    """float32: log-probs under the policy to stay near, where there is one."""

    def __len__(self) -> int:
        return len(self.targets_C)

    def __getitem__(self, part: slice) -> CompletionTokens:
        """The same of some of the tokens."""

        def cut(values: Any) -> Any:
            return None if values is None else values[part]

        return CompletionTokens(*(cut(getattr(self, field.name)) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One micro-batch: a stream of whole groups or parts of groups. A prompt stands once, before its completions, and what all
    prompts begin with once, before all.

    A completion's last token is predicted but never fed, so a completion of n tokens takes n - 1 places in the stream.
    """

    tokens_T: Tensor
    """int64 stream."""
    positions_T: Tensor
    """int64 position of each token in its own sequence."""
    attend: PackedGroups
    predictor_C: Tensor
    """int64: stream index of the hidden state that predicts each completion token."""
    completion: CompletionTokens


def split_micro_batches(rows: Sequence[TrainRow], max_tokens: int, max_rows: int | None) -> Iterator[list[TrainRow]]:
    """Cut rows into micro-batches, group by group, of at most ``max_tokens`` stream tokens and ``max_rows`` completions.

    A group that does not fit is continued in the next micro-batch with its prompt again; a single completion over the budget
    goes alone. Rows of a group must stand together. Completions padded to the longest of the micro-batch, as attention lays
    them out, take at most ``MAX_PADDING`` times ``max_tokens`` places.
    """
    batch: list[TrainRow] = []
    prompts: list[Sequence[int]] = []
    own_tokens = longest = 0
    for row in rows:
        if not batch or batch[-1].group != row.group:
            prompts = [*prompts, row.prompt_ids]
        own_tokens += len(row.completion_ids) - 1
        longest = max(longest, len(row.completion_ids))
        is_over = (
            _num_tokens(prompts) + own_tokens > max_tokens or (len(batch) + 1) * longest > MAX_PADDING * max_tokens
        )
        if batch and (is_over or len(batch) == max_rows):
            yield batch
            batch, prompts = [], [row.prompt_ids]
            own_tokens, longest = len(row.completion_ids) - 1, len(row.completion_ids)
        batch.append(row)
    if batch:
        yield batch


def _num_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Of a stream's prompts."""
    return sum(map(len, prompts)) - (len(prompts) - 1) * shared_length(prompts)


def pack(rows: Sequence[TrainRow], device: torch.device) -> PackedBatch:
    """Lay rows out as one stream. Rows of a group must stand together; empty completions contribute nothing."""
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.group)]
    shared = shared_length([group[0].prompt_ids for group in groups])
    tokens = list(groups[0][0].prompt_ids[:shared])
    predictors: list[np.ndarray] = []
    layouts: list[GroupLayout] = []
    for group in groups:
        prompt_ids = group[0].prompt_ids[shared:]
        tokens += prompt_ids
        prompt_end = len(tokens) - 1
        completions = [row.completion_ids for row in group if row.completion_ids]
        for completion_ids in completions:
            own = np.arange(len(tokens) - 1, len(tokens) - 1 + len(completion_ids))
            own[0] = prompt_end
            predictors.append(own)
            tokens += completion_ids[:-1]
        layouts.append(GroupLayout(len(prompt_ids), tuple(len(completion_ids) - 1 for completion_ids in completions)))

    sizes = [len(row.completion_ids) for row in rows]
    unknown = [[float("nan")] * size for size in sizes]
    sampled = [row.sampled_logprobs or nan for row, nan in zip(rows, unknown, strict=True)]
    old = [row.old_logprobs or own for row, own in zip(rows, sampled, strict=True)]
    reference = [row.reference_logprobs for row in rows if row.reference_logprobs is not None]

    def per_token(values: Sequence[float] | np.ndarray) -> Tensor:
        return torch.from_numpy(np.repeat(np.asarray(values), sizes)).to(device)

    def joined(lists: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
        return torch.tensor([value for values in lists for value in values], dtype=dtype, device=device)

    return PackedBatch(
        tokens_T=torch.tensor(tokens, device=device),
        positions_T=torch.from_numpy(packed_positions(layouts, shared)).to(device),
        attend=PackedGroups(layouts, device, shared),
        predictor_C=torch.from_numpy(np.concatenate([np.empty(0, np.int64), *predictors])).to(device),
        completion=CompletionTokens(
            targets_C=joined([row.completion_ids for row in rows], torch.int64),
            advantages_C=per_token(np.array([row.advantage for row in rows], np.float32)),
            weights_C=per_token(np.array([row.weight for row in rows], np.float32)),
            row_C=per_token(np.arange(len(rows))),
            sampled_logprobs_C=joined(sampled, torch.float32),
            old_logprobs_C=joined(old, torch.float32),
            reference_logprobs_C=joined(reference, torch.float32) if reference else None,
        ),
    )
