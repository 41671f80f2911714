"""What a task is: it turns a row of data into a question, and judges the text of an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from grpo_zero.types import Problem, Verdict

Group = tuple[Problem, Sequence[tuple[str, bool]]]
"""A question and the answers to it: the text of each, and whether it is finished."""


@runtime_checkable
class Task(Protocol):
    """The functions that training needs of a task. A task sees text, never token ids.

    Optional: ``time_limit_s``, seconds an answer may take where the configuration says nothing; and ``verify_group``, from a
    ``Group`` to its verdicts, where answers to one question are judged against each other (``tasks/judging.py``).

    Both are plain functions of their arguments: no state, no clock, no signal, so they give the
    same result from any thread and in any order.
    """

    name: str
    """The name that ``load_task`` and the configuration use."""
    response_start: str
    """Text with which the prompt begins the response; may be empty."""

    @property
    def example(self) -> Callable[[dict[str, Any]], str] | None:
        """Makes a right completion for a row, where the task can."""

    def load(
        self, path: str, *, test_size: int, **generator: Any
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
        """Rows to train on, held-out rows, and how many: ``train``, ``test``, ``dropped`` (training rows that are held out).

        ``generator`` holds options where ``path`` is ``generate``, and nothing elsewhere.
        Raises ``UserError`` when there are too few rows or they cannot be read.
        """
        ...

    def problem(self, row: Mapping[str, Any]) -> Problem:
        """Make the question of one data row.

        Raises ``UserError`` naming the culprit when the row is malformed or has no right answer.
        """
        ...

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """Judge ``completion``, the generated text alone, without the prompt.

        ``finished`` is False when the length limit cut the text. Never raises for any text.
        """
        ...
