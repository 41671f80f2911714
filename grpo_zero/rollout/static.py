"""Decoding with fixed shapes, for a GPU: steps are replayed as CUDA graphs, and the host looks only now and then.

What the device holds is in ``rollout/grid.py``; here the host keeps who sits in which cell. Where the device is no GPU the same
code runs step by step.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout.cache import PromptStore
from grpo_zero.rollout.graphs import StepGraphs
from grpo_zero.rollout.grid import Grid, Shape
from grpo_zero.rollout.prefill import prefill
from grpo_zero.rollout.request import Answers, Request
from grpo_zero.types import Completion

POLL_EVERY = {"cuda": 8}
"""Steps between the host's looks at what has ended, by device; 1 elsewhere. A look costs the wait for the device."""
OWN_STEP = 128
"""Attention reads own tokens up to a multiple of this: a graph a multiple, and little that is not there."""


def generate_static(decoder: Decoder, request: Request) -> list[list[Completion]]:
    """``completions_PG``. A completion's cell is free from the look after its end on."""
    poll_every = POLL_EVERY.get(decoder.device.type, 1)
    seats = Seats(decoder, request)
    graphs = StepGraphs(seats.grid.step, decoder.device)
    try:
        while seats.waiting or seats.samples:
            seats.admit()
            if seats.collect():
                if seats.waiting:
                    continue
                seats.compact()
            if seats.samples:
                num_steps = min(poll_every, seats.most_steps_left)
                shape = seats.shape(num_steps)
                for _ in range(num_steps):
                    graphs.run(shape)
    finally:
        graphs.release()
    return seats.answers.completions_PG()


class Seats:
    """Which completion sits in which cell of the grid, and which still wait.

    A grid row serves one prompt at a time. A row in which nothing runs takes the first prompt that waits, one with free cells
    more completions of its own.
    """

    def __init__(self, decoder: Decoder, request: Request) -> None:
        num_prompts = len(request.prompts)
        self.decoder, self.request = decoder, request
        self.num_rows, self.num_columns = grid_size(num_prompts, request.num_samples, request.num_slots)
        prompt_max = max(len(prompt) for prompt in request.prompts)
        self.grid = Grid(decoder, request, self.num_rows, self.num_columns, prompt_max)
        self.waiting = {p: deque(range(request.num_samples)) for p in range(num_prompts)}
        """Samples still to begin, by prompt; prompts without any are not there."""
        self.prompt_of_row: list[int | None] = [None] * self.num_rows
        self.samples: dict[int, int] = {}
        """Sample index by cell, of what runs."""
        self.first_logits: dict[int, Tensor] = {}
        self.num_new_S = np.ones(self.num_rows * self.num_columns, dtype=np.int64)
        self.answers = Answers(request)

    def admit(self) -> None:
        """Let waiting completions into free cells, with their first tokens."""
        placed: list[tuple[int, int, int]] = []
        fresh: dict[int, list[int]] = {}
        for row in range(self.num_rows if self.waiting else 0):
            cells = [cell for cell in self._cells(row) if cell not in self.samples]
            if len(cells) == self.num_columns and self.waiting and self.prompt_of_row[row] not in self.waiting:
                prompt_index = next(iter(self.waiting))
                self.prompt_of_row[row] = prompt_index
                fresh.setdefault(prompt_index, []).append(row)
            p = self.prompt_of_row[row]
            if p is None or p not in self.waiting:
                continue
            samples = self.waiting[p]
            placed += [(cell, p, samples.popleft()) for cell in cells[: len(samples)]]
            if not samples:
                del self.waiting[p]
        if not placed:
            return

        def keep(prompt_index: int, store: PromptStore, position: int) -> None:
            for row in fresh[prompt_index]:
                self.grid.seat_prompt(row, store, position)

        self.first_logits |= prefill(self.decoder, list(fresh), self.request.prompts, keep)
        cells = [cell for cell, _, _ in placed]
        logits_NV = torch.stack([self.first_logits[p] for _, p, _ in placed])
        self.first_logits = {p: logits for p, logits in self.first_logits.items() if p in self.waiting}
        self.grid.admit(cells, logits_NV, np.stack([self.request.noise_T(p, g) for _, p, g in placed]))
        self.samples |= {cell: g for cell, _, g in placed}

    def collect(self) -> int:
        """Look at the device, read out what has ended and free its cells; returns how many those were."""
        self.num_new_S, has_ended_S = self.grid.poll(self.num_rows * self.num_columns)
        ended = [cell for cell in self.samples if has_ended_S[cell]]
        if not ended:
            return 0
        for cell, (ids, logprobs) in zip(ended, self.grid.read(ended, self.num_new_S), strict=True):
            p = self.prompt_of_row[cell // self.num_columns]
            assert p is not None
            self.answers.add(p, self.samples.pop(cell), ids, logprobs)
        self.answers.report()
        return len(ended)

    def compact(self) -> None:
        """Move what runs together, where that at least halves the grid. Sizes are powers of two, so that there are few graphs."""
        rows = sorted({cell // self.num_columns for cell in self.samples})
        running = [[cell for cell in self._cells(row) if cell in self.samples] for row in rows]
        num_rows = min(self.num_rows, _power_of_two(len(rows)))
        num_columns = min(self.num_columns, _power_of_two(max(map(len, running), default=0)))
        if not rows or 2 * num_rows * num_columns > self.num_rows * self.num_columns:
            return
        rows += rows[:1] * (num_rows - len(rows))
        running += [[] for _ in range(num_rows - len(running))]
        cells = [cell for row in running for cell in [*row, *[None] * (num_columns - len(row))]]
        sources = [old or 0 for old in cells]  # a cell that nobody sits in may hold anything
        self.grid.move(rows, sources)
        self.prompt_of_row = [self.prompt_of_row[row] for row in rows]
        self.samples = {new: self.samples[old] for new, old in enumerate(cells) if old is not None}
        self.num_new_S = self.num_new_S[sources]
        self.num_rows, self.num_columns = num_rows, num_columns

    @property
    def most_steps_left(self) -> int:
        """Steps after which everything that runs has reached the length limit."""
        return self.request.params.max_new_tokens - int(self.num_new_S[list(self.samples)].min())

    def shape(self, num_steps: int) -> Shape:
        """Of the next ``num_steps`` steps."""
        longest = int(self.num_new_S[list(self.samples)].max()) + num_steps - 1
        own_max = min(self.request.params.max_new_tokens, -(-longest // OWN_STEP) * OWN_STEP)
        return Shape(self.num_rows, self.num_columns, own_max)

    def _cells(self, row: int) -> range:
        return range(row * self.num_columns, (row + 1) * self.num_columns)


def grid_size(num_prompts: int, num_samples: int, num_slots: int) -> tuple[int, int]:
    """``(rows, columns)`` of at most ``num_slots`` cells: the most cells, then the most columns.

    Where not all of a prompt's completions fit a row, they take several rows or one after the other.
    """
    sizes = []
    columns = min(num_samples, num_slots)
    while columns:
        rows = min(num_slots // columns, num_prompts * -(-num_samples // columns))
        sizes.append((rows * columns, columns, rows))
        columns //= 2
    _, columns, rows = max(sizes)
    return rows, columns


def _power_of_two(count: int) -> int:
    """At or above ``count``."""
    return 1 << max(count - 1, 0).bit_length()
