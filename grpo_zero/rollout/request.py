"""What a sampling strategy is asked for, and how a sampled row becomes a completion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from grpo_zero.errors import UserError
from grpo_zero.randomness import stream
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.types import Completion, FinishReason

Progress = Callable[[int, int], None]
NOT_FINITE = (
    "Sampling met a log-probability of {} at token {} of an answer to prompt {}: the model's numbers are not finite. Of a model "
    "that has not been trained here, files are damaged or activations overflow: download it again or try model.dtype=float32; "
    "if training brought it there, go back to an earlier checkpoint, with a lower training.learning_rate."
)


@dataclass(frozen=True, slots=True)
class Request:
    """``num_samples`` completions for each of ``prompts``."""

    prompts: Sequence[Sequence[int]]
    """Token ids, each at least one."""
    num_samples: int
    """Completions per prompt (G)."""
    num_slots: int
    """Most completions to sample at once."""
    params: SamplingParams
    stop_ids: frozenset[int]
    has_token_V: Tensor | None
    seed_key: tuple[int, str, int]
    """(seed, purpose, step); with the prompt's and the sample's index it names a completion's noise."""
    policy_step: int
    progress: Progress | None
    is_compiled: bool = False
    """Whether a step is compiled C (``compiled.py``); for dynamic shapes only."""

    def noise_T(self, prompt_index: int, sample_index: int) -> np.ndarray:
        """The uniform number of each of the completion's positions, float64 in [0, 1)."""
        return stream(*self.seed_key, prompt_index, sample_index).random(self.params.max_new_tokens)


class Answers:
    """The completions that have ended."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.num_finished = 0
        self.found: dict[tuple[int, int], Completion] = {}

    def add(self, prompt_index: int, sample_index: int, token_ids: list[int], logprobs: list[float]) -> None:
        """Keep one completion.

        Raises:
            UserError: a log-prob is not finite, so its token is no sample of anything.
        """
        place = next((place for place, logprob in enumerate(logprobs) if not math.isfinite(logprob)), None)
        if place is not None:
            raise UserError(NOT_FINITE.format(logprobs[place], place + 1, prompt_index + 1))
        reason: FinishReason = "stop" if token_ids[-1] in self.request.stop_ids else "length"
        step = self.request.policy_step
        completion = Completion(prompt_index, sample_index, token_ids, logprobs, reason, step)
        self.found[prompt_index, sample_index] = completion

    def report(self) -> None:
        """Tell ``progress`` how many there are, if there are more than last time."""
        total = len(self.request.prompts) * self.request.num_samples
        if len(self.found) > self.num_finished and self.request.progress is not None:
            self.request.progress(len(self.found), total)
        self.num_finished = len(self.found)

    def completions_PG(self) -> list[list[Completion]]:
        """All of them, prompt by prompt."""
        samples = range(self.request.num_samples)
        return [[self.found[p, g] for g in samples] for p in range(len(self.request.prompts))]
