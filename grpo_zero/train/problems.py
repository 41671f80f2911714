"""Problems with their prompts, and the order in which they are drawn: a pure function of seed and position."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from grpo_zero.checkpoint.hub import data_path
from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.randomness import stream
from grpo_zero.tasks import Task, load_task
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.train.policy import Policy
from grpo_zero.types import Problem

NUM_MEASURED_PROMPTS = 20_000
"""Training prompts whose length is taken when loading (seconds); later ones are measured when they are drawn."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """A problem and the token ids that pose it."""

    problem: Problem
    prompt_ids: list[int]


def make_task(config: Config) -> Task:
    """The configured task with the configured wording; what is null is the task's own."""
    data = config.data
    wording = {"prompt": data.prompt, "response_start": data.response_start}
    answer = {"answer_rule": data.answer_rule, "answer_mark": data.answer_mark}
    rewards = {"rewards": data.rewards, "reward_weights": data.reward_weights, "reward_batch": data.reward_batch}
    given = wording | answer | rewards | {"parameters": data.parameters}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if data.system_prompt is not None:
        options["system_prompt"] = data.system_prompt or None
    make = partial(load_task, data.task, **options)
    task = make()
    timeout_s = data.verify_timeout_s or getattr(task, "time_limit_s", None)
    return task if timeout_s is None else IsolatedTask(task, make, timeout_s, data.verify_workers)


def load_rows(config: Config, task: Task) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
    """Training rows, held-out rows and facts about them (``Task.load``)."""
    data = config.data
    generator: dict[str, Any] = {}
    if data.path == "generate":
        generator = {"counts": data.numbers_per_problem, "numbers": data.number_range, "targets": data.target_range}
        generator |= {"train_size": data.train_size, "seed": data.data_seed}
    is_file_of_own = ".py" in data.task  # its rows() does not look at the path
    path = data.path if is_file_of_own else data_path(data.path)
    return task.load(path, test_size=data.test_size, **generator)


class ProblemSource:
    """Rows as prompted problems; prompts over the limit are left out and counted.

    Args:
        task, policy: make the problem and its prompt.
        rows: data rows; every one is turned into a problem at once, so that a bad row stops the run before it starts.
        max_prompt_len: longest prompt, tokens.
        name: what the rows are, for messages.

    Raises:
        UserError: a malformed or unsolvable row; no row whose prompt fits.
    """

    def __init__(
        self, task: Task, policy: Policy, rows: Sequence[Mapping[str, Any]], max_prompt_len: int, name: str
    ) -> None:
        self.task, self.policy, self.rows = task, policy, rows
        self.max_prompt_len, self.name = max_prompt_len, name
        measured = range(min(len(rows), NUM_MEASURED_PROMPTS))
        self._usable = [index for index in measured if self._fits(self[index])]
        self.num_too_long = len(measured) - len(self._usable)
        """Prompts found to be over the limit when loading."""
        for row in rows[len(measured) :]:
            task.problem(row)
        self._usable += range(len(measured), len(rows))
        if not self._usable:
            shortest = min(len(self[index].prompt_ids) for index in measured)
            raise UserError(
                f"None of the {len(rows)} {name} prompts fits training.max_prompt_len = {max_prompt_len} tokens; the shortest "
                f"has {shortest}: raise it to at least that."
            )

    def __len__(self) -> int:
        return len(self._usable)

    def __getitem__(self, row_index: int) -> Prompted:
        problem = self.task.problem(self.rows[row_index])
        return Prompted(problem, self.policy.prompt_ids(problem))

    def _fits(self, item: Prompted) -> bool:
        return len(item.prompt_ids) <= self.max_prompt_len

    def first(self, count: int | None) -> list[Prompted]:
        """The first ``count`` usable problems, None = all: what evaluation measures on."""
        return [self[index] for index in self._usable[:count]]

    def draw(
        self, seed: int, step: int, count: int, round_index: int = 0, seen: Collection[str] = ()
    ) -> list[Prompted]:
        """The problems of one step. Each pass over the data has an order of its own; no state is kept.

        Problems found to be too long only now (beyond the first ``NUM_MEASURED_PROMPTS``) are replaced by the next.

        Args:
            seed, step: what the problems are a function of.
            count: how many.
            round_index: above 0, further problems of the same step, in an order of the round's own (purpose ``more``).
            seen: keys of problems the step already has; further rounds leave them out and may come back with fewer than asked.
        """
        if round_index:
            order = iter(stream(seed, "more", step, round_index).permutation(len(self._usable)).tolist())
        else:
            order = islice(endless_order(seed, len(self._usable), (step - 1) * count), 100 * count)
        items = (self[self._usable[index]] for index in order)
        fitting = (item for item in items if self._fits(item) and item.problem.key not in seen)
        drawn = list(islice(fitting, count))
        if len(drawn) < count and not round_index:
            raise UserError(
                f"Of {100 * count} {self.name} prompts in a row fewer than {count} fit training.max_prompt_len = "
                f"{self.max_prompt_len} tokens: raise it."
            )
        return drawn


def held_out_problems(
    config: Config, task: Task, policy: Policy, test_rows: Sequence[Mapping[str, Any]]
) -> list[Prompted]:
    """The problems that evaluation measures on. Raises UserError as ``ProblemSource`` does."""
    source = ProblemSource(task, policy, test_rows, config.training.max_prompt_len, "held-out")
    return source.first(config.evaluation.num_problems)


def endless_order(seed: int, num_rows: int, position: int) -> Iterator[int]:
    """Row indices from ``position`` on, pass after pass over the data, each pass in an order of its own (purpose ``order``)."""
    epoch, offset = divmod(position, num_rows)
    while True:
        yield from stream(seed, "order", epoch).permutation(num_rows)[offset:].tolist()
        epoch, offset = epoch + 1, 0
