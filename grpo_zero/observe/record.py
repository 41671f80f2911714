"""What a step leaves behind, and one sampled answer as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_zero.observe.catalogue import require_known
from grpo_zero.types import FinishReason

Kind = Literal["train", "eval", "sft"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The numbers of one step; a metric that the catalogue lacks raises ``ValueError``."""

    step: int
    """Number of steps done."""
    kind: Kind
    """What was done: a GRPO step, an evaluation, or a step of supervised training."""
    metrics: Mapping[str, float]
    """Values by catalogue name; a metric without a value in this step is absent."""

    def __post_init__(self) -> None:
        require_known(self.metrics)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One completion with its verdict, for reading by eye."""

    step: int
    """Number of steps the sampling weights had seen."""
    kind: Kind
    """What it was sampled for."""
    prompt: str
    """The prompt as text, chat template included."""
    response: str
    """The completion as text."""
    reward: float
    """The verdict's reward."""
    parts: Mapping[str, float]
    """The reward by part."""
    reason: str
    """The verdict in a few words."""
    advantage: float | None
    """How it compares with its group, also where the loss left it out; None in an evaluation, and in groups that dynamic
    sampling left out."""
    finish_reason: FinishReason
    """``stop`` or ``length``."""
    correct: bool
    """Whether the answer is right."""
    length: int
    """Completion tokens, the stop token included."""
    token_characters: Sequence[int] | None = None
    """Characters of the response that each token adds, of the stop token 0; None where the run does not keep them."""
    token_logprobs: Sequence[float] | None = None
    """Log-prob (nats) of each token when it was sampled, to three decimals; None as above."""
