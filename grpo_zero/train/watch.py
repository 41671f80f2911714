"""What goes wrong in a run and does not stop it at once, as sentences for the log: each says something new or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

import torch

from grpo_zero.config import TrainingConfig
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.observe.catalogue import CATALOGUE, FLOAT32_LOGPROB_GAP
from grpo_zero.observe.record import StepRecord
from grpo_zero.text.tokenizer import Tokenizer
from grpo_zero.train.bad_batch import BadBatch


class SkippedSteps:
    """Counts steps in a row in which an update was skipped; a step without any update to take changes nothing.

    Args:
        limit: ``training.max_skipped_steps``.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit, self.in_a_row = limit, 0

    def note(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Count the step; a sentence if updates were skipped in it."""
        skipped = int(metrics["skipped_updates"])
        taken = int(metrics.get("num_updates", not skipped))  # a step of supervised training is one update
        if not skipped:
            self.in_a_row = 0 if taken else self.in_a_row
            return None
        self.in_a_row += 1
        what = f"step {step}" if not taken else f"{skipped} of the {skipped + taken} updates of step {step}"
        numbers = "" if taken else f" (loss {metrics['loss']:g}, gradient norm {metrics['grad_norm']:g})"
        limit = "" if self.limit is None else f"; the run stops at {self.limit}"
        return (
            f"{what} skipped: loss or gradient is not finite{numbers}; weights and moments stay as they were; "
            f"{self.in_a_row} in a row{limit}"
        )

    @property
    def is_over(self) -> bool:
        """Whether the run has to stop."""
        return self.limit is not None and self.in_a_row >= self.limit


class SamplerWatch:
    """Warns when the sampler's log-probs part from the trainer's, and again only after they have met in between.

    Args:
        is_float32: whether the weights are.
        has_dropout: then the training forward differs by design, and there is nothing to watch.
    """

    def __init__(self, *, is_float32: bool, has_dropout: bool = False) -> None:
        worry_above = CATALOGUE["logprob_gap"].worry_above
        assert worry_above is not None
        self.limit = FLOAT32_LOGPROB_GAP if is_float32 else worry_above
        self.is_watching, self.is_apart = not has_dropout, False

    def note(self, metrics: Mapping[str, float]) -> str | None:
        """A sentence in the first step out of range."""
        gap = metrics.get("logprob_gap", math.nan)
        if not self.is_watching or math.isnan(gap):  # nothing forwarded, or a skipped step, which has its own sentence
            return None
        was_apart, self.is_apart = self.is_apart, gap > self.limit
        if was_apart or not self.is_apart:
            return None
        return (
            f"sampler and trainer disagree by {gap:.2g} nats a token (healthy: below {self.limit:g}), so the update learns "
            "from answers that the policy it moves would not have given like that. Either weights change between sampling and "
            "update, or the two compute differently: try training.decode_kernels=plain, training.decode=dynamic or "
            "model.dtype=float32 (docs/troubleshooting.md#sampler-and-trainer-disagree); this is said once"
        )


def lowered_note(before: TrainingConfig, after: TrainingConfig) -> str | None:
    """A sentence about sizes that were lowered where memory ran out; None where they are the same."""
    lowered = [
        f"training.{field.name} is now {getattr(after, field.name)}"
        for field in fields(TrainingConfig)
        if getattr(before, field.name) != getattr(after, field.name)
    ]
    if not lowered:
        return None
    return f"memory ran out: {' and '.join(lowered)} for the rest of the run; what was under way was done again"


class Watch:
    """All of it, for a run.

    Args:
        training: as configured.
        decoder: the policy.
        sizes: the training section as it is by then, with what shortages of memory have lowered.
    """

    def __init__(self, training: TrainingConfig, decoder: Decoder, sizes: Callable[[], TrainingConfig]) -> None:
        self.sizes, self.told = sizes, training
        self.skipped = SkippedSteps(training.max_skipped_steps)
        is_float32 = decoder.embedding.weight.dtype == torch.float32
        self.sampler = SamplerWatch(is_float32=is_float32, has_dropout=decoder.has_dropout)

    def after_step(self, record: StepRecord) -> list[str]:
        """Sentences about a step."""
        notes = (self.skipped.note(record.step, record.metrics), self.sampler.note(record.metrics))
        return [*self.lowered(), *filter(None, notes)]

    def lowered(self) -> list[str]:
        """A sentence if sizes were lowered since the last call."""
        before, self.told = self.told, self.sizes()
        note = lowered_note(before, self.told)
        return [note] if note else []

    def stop(self, batch: BadBatch, folder: Path, tokenizer: Tokenizer) -> NoReturn:
        """Raises ``UserError``: too many steps in a row were skipped; the last one's batch is in the run folder by then."""
        raise UserError(
            f"Loss or gradient was not finite in {self.skipped.in_a_row} steps in a row, the last of them step {batch.step}, so "
            f"the run stops (training.max_skipped_steps) without a new checkpoint; {batch.finding}. The batch is in "
            f"{batch.write(folder, tokenizer)}."
        )
