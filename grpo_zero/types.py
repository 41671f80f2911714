"""Records that cross the borders between stages, and the legend of axis names. No torch here.

Axis legend. A name's suffix spells its axes, outermost first: ``rewards_PG``, ``logprobs_T``, ``q_THD``.

    P  prompts (questions) of a step          G  completions per prompt (a group)
    B  rows, B = P * G                        T  tokens in a flat stream
    N  completions in one packed micro-batch  S  slots of the sampling engine
    V  vocabulary                             E  model width
    F  feed-forward width                     L  layers
    H  query heads                            K  key/value heads
    D  head size                              C  tokens in one chunk of the vocabulary head
    U  updates on one rollout
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One question, ready to be put into a chat template, with what is needed to check its answer."""

    messages: tuple[Mapping[str, str], ...]
    """Chat messages (``role``, ``content``) that pose the question."""
    response_start: str
    """Text that the prompt already holds of the assistant's turn, e.g. ``"<think>"``; may be empty."""
    row: Mapping[str, Any]
    """Every column of the source row; ``Task.verify`` reads its ground truth from here."""
    key: str
    """Identity by content: equal keys are the same question (for Countdown: target and sorted numbers)."""
    difficulty: str | None = None
    """The class that evaluation counts it in, e.g. ``"3 numbers"``; None where the task names none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a task's program says of one completion."""

    reward: float
    """The scalar that training uses."""
    parts: Mapping[str, float]
    """The reward by part, e.g. ``{"format": 0.1, "answer": 1.0}``; the parts sum to ``reward``."""
    reason: str
    """Why, in a few words, for the person who reads samples.jsonl."""
    correct: bool = False
    """Whether the answer is right; success rates count this and nothing else."""
    failed: bool = False
    """Whether the program that judges failed on it; ``reward`` is NaN then, which is no reward at all."""
    notes: Mapping[str, float] = field(default_factory=dict)
    """What is reported besides and not paid, e.g. ``{"strict": 1.0, "lenient": 1.0}``: which rules find the answer right."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer, as the sampling engine returns it."""

    prompt_index: int
    """Which prompt of the call it answers, 0..P-1."""
    sample_index: int
    """Which of the prompt's answers it is, 0..G-1."""
    token_ids: list[int]
    """Sampled ids, the stop id included when there is one; never a re-tokenised text."""
    logprobs: list[float]
    """Log-prob (nats) of each sampled id under the distribution that was really sampled."""
    finish_reason: FinishReason
    """``stop``: it ended with a stop id. ``length``: the limit cut it."""
    policy_step: int
    """Number of steps the sampling weights had seen."""

    @property
    def is_finished(self) -> bool:
        """Whether the model ended its answer itself."""
        return self.finish_reason == "stop"
