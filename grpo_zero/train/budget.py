"""The micro-batch budget of a run, halved for good where memory runs out; what was under way is done again with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from grpo_zero.allocator import empty_caches
from grpo_zero.config import TrainingConfig
from grpo_zero.out_of_memory import OutOfMemory, with_less
from grpo_zero.train.batch import TrainRow, split_micro_batches
from grpo_zero.train.optimizer import AdamW

ResultT = TypeVar("ResultT")
STEP = "the optimizer's step"
"""A stage that cannot be done again: weights and moments change where they are."""


class Budget:
    """Sizes of training forwards. Only micro-batches shrink: groups and weights of rows are those of the whole update."""

    def __init__(self, training: TrainingConfig) -> None:
        self.training = training
        """As configured, but for a lowered ``micro_batch_tokens``."""
        self.num_shortages = 0
        """Times that memory ran out and work began again."""

    def attempt(
        self,
        work: Callable[[TrainingConfig], ResultT],
        rows: Sequence[TrainRow],
        stage: str,
        optimizer: AdamW | None = None,
    ) -> ResultT:
        """``work`` with the budget, and again with a smaller one where memory runs out.

        Args:
            work: forwards ``rows`` in micro-batches.
            stage: what it is, for the error.
            optimizer: whose gradients it makes, where it makes any; they are dropped before it begins again.

        Raises:
            OutOfMemory: a micro-batch of the longest row alone is too large, or the optimizer had begun to change weights.
        """
        num_steps = optimizer.num_steps if optimizer else 0

        def make_smaller() -> bool:
            if optimizer:
                optimizer.drop()
            empty_caches()
            if optimizer and optimizer.num_steps != num_steps:
                raise OutOfMemory(STEP, "some weights have been stepped and others not")
            return self._halve(rows)

        return with_less(lambda: work(self.training), make_smaller, stage)

    def _halve(self, rows: Sequence[TrainRow]) -> bool:
        """Halve until the rows are cut up otherwise than before; False where the longest row's tokens do not allow it."""
        rows = [row for row in rows if row.completion_ids]
        smallest = max((len(row.prompt_ids) + len(row.completion_ids) - 1 for row in rows), default=0)
        training, before = self.training, _sizes(rows, self.training)
        while training.micro_batch_tokens > smallest:
            training = replace(training, micro_batch_tokens=max(smallest, training.micro_batch_tokens // 2))
            if _sizes(rows, training) != before:
                self.training = training
                self.num_shortages += 1
                return True
        return False


def _sizes(rows: Sequence[TrainRow], training: TrainingConfig) -> list[int]:
    """Rows in each micro-batch."""
    return [len(part) for part in split_micro_batches(rows, training.micro_batch_tokens, training.micro_batch_size)]
