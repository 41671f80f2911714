"""Who runs where: which completions occupy which slots. Plain Python, no torch.

Running completions always fill slots 0..n-1, so the batch is a slice and shrinks in the tail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Running:
    """One completion while it is being sampled."""

    prompt_index: int
    sample_index: int


@dataclass(frozen=True, slots=True)
class Move:
    """A running completion changes slots: its cache row has to follow."""

    source: int
    target: int


class Scheduler:
    """First come, first served over a fixed number of slots.

    Args:
        num_prompts, num_samples: every prompt is answered ``num_samples`` times, prompt by prompt.
        num_slots: how many completions may run at once, at least 1.
    """

    def __init__(self, num_prompts: int, num_samples: int, num_slots: int) -> None:
        self.num_slots = num_slots
        self.waiting = deque(Running(p, g) for p in range(num_prompts) for g in range(num_samples))
        self.running: list[Running] = []

    @property
    def is_done(self) -> bool:
        return not self.waiting and not self.running

    def retire(self, finished_slots: Iterable[int]) -> list[Move]:
        """Take finished completions out and close the gaps from the tail.

        Returns:
            Moves to copy in the cache, in an order in which no source is overwritten before it is read.
        """
        moves = []
        for slot in sorted(finished_slots, reverse=True):
            tail = len(self.running) - 1
            if slot != tail:
                moves.append(Move(tail, slot))
                self.running[slot] = self.running[tail]
            self.running.pop()
        return moves

    def admit(self) -> list[Running]:
        """Let waiting completions into the free slots; they take the slots from ``len(running)`` on, in order."""
        admitted = [self.waiting.popleft() for _ in range(min(self.num_slots - len(self.running), len(self.waiting)))]
        self.running += admitted
        return admitted
