"""The Countdown task: make the target from the given numbers, each used exactly once."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_zero.errors import UserError, nearest, shown
from grpo_zero.tasks.countdown_data import load_countdown
from grpo_zero.tasks.countdown_row import read_row, row_key
from grpo_zero.tasks.expressions import ExpressionError, read_expression
from grpo_zero.tasks.row_files import Row
from grpo_zero.tasks.solve import is_solvable
from grpo_zero.tasks.tags import has_exact_form, last_answer
from grpo_zero.types import Problem, Verdict

DEFAULT_SYSTEM = "You solve number puzzles: you reason first, and then state one final answer."
"""The default system message."""
DEFAULT_PROMPT = (
    "Numbers: {nums}\n"
    "Target: {target}\n"
    "Write an arithmetic expression whose value is the target. It must contain every one of the "
    "numbers exactly once and no other number. Allowed are only +, -, *, / and parentheses. "
    "Put your reasoning between <think> and </think>, and after it the finished expression alone, "
    "without an equals sign, between <answer> and </answer>."
)
"""The default wording; ``{nums}`` and ``{target}`` are filled in from the row."""
FORMAT_REWARD = 0.1
"""Paid in full for the exact form of ``tags.has_exact_form``, and not at all for less."""
ANSWER_REWARD = 1.0
"""Paid for a right answer, whatever the form."""


class CountdownTask:
    """Countdown questions, checked exactly; rows are ``{"nums": [...], "target": n}``."""

    name = "countdown"
    example = None

    def __init__(
        self,
        prompt: str = DEFAULT_PROMPT,
        system_prompt: str | None = DEFAULT_SYSTEM,
        response_start: str = "<think>",
    ) -> None:
        """``prompt`` is a template with ``{nums}`` and ``{target}``; ``system_prompt`` None sends
        none.

        ``response_start`` is the text with which the prompt begins the response.
        Raises ``UserError`` when the template lacks a placeholder or has another one.
        """
        _check_template(prompt)
        self.prompt = prompt
        self.system_prompt = system_prompt
        self.response_start = response_start

    def load(self, path: str, *, test_size: int, **generator: Any) -> tuple[list[Row], list[Row], dict[str, int]]:
        """Rows to train on, held-out rows, and how many (``countdown_data.load_countdown``)."""
        return load_countdown(path, test_size=test_size, **generator)

    def problem(self, row: Mapping[str, Any], check_solvable: bool = True) -> Problem:
        """Make the question of one row.

        Raises ``UserError`` for a malformed row and, with ``check_solvable``, for one whose target
        cannot be made: no answer could be right, so it would only waste samples.
        """
        nums, target = read_row(row)
        if check_solvable and not is_solvable(nums, target):
            raise UserError(
                f"No expression that uses each of {nums} once equals {target}; remove the "
                f"Countdown row {shown(dict(row))} or correct it."
            )
        question = self.prompt.format(nums=nums, target=target)
        messages = [{"role": "user", "content": question}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return Problem(tuple(messages), self.response_start, row, row_key(nums, target), f"{len(nums)} numbers")

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """Judge the generated text: parts ``format`` (0.1 or 0) and ``answer`` (1.0 or 0).

        The answer is the last complete answer block after the reasoning; a block that a cut left
        open is none. The two parts are independent. Never raises, for any text.
        """
        answer = last_answer(completion)
        if answer is not None:
            reason = wrong_because(answer, problem.row["nums"], problem.row["target"])
        else:
            reason = "no answer block" if finished else "cut off before an answer block"
        parts = {
            "format": FORMAT_REWARD if has_exact_form(completion, problem.response_start) else 0.0,
            "answer": 0.0 if reason else ANSWER_REWARD,
        }
        return Verdict(sum(parts.values()), parts, reason or "right", correct=not reason)


def wrong_because(answer: str, nums: Sequence[int], target: int) -> str:
    """Why ``answer`` does not make ``target`` of exactly ``nums``; an empty string when it does."""
    try:
        expression = read_expression(answer)
    except ExpressionError as error:
        return str(error)
    used, given = Counter(expression.numbers), Counter(nums)
    for number, count in used.items():
        if number not in given:
            return f"number {number} is not given"
        if count > given[number]:
            return f"uses {number} {_times(count)} instead of {_times(given[number])}"
    for number, count in given.items():
        if used[number] == 0:
            return f"leaves {number} unused"
        if used[number] < count:
            return f"uses {number} {_times(used[number])} instead of {_times(count)}"
    if expression.value != target:
        return f"equals {expression.value}, not {target}"
    return ""


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _check_template(prompt: str) -> None:
    """Raise ``UserError`` unless ``prompt`` has the plain placeholders nums and target only."""
    try:
        parts = list(string.Formatter().parse(prompt))
    except ValueError as error:
        raise UserError(
            f"The Countdown prompt cannot be read as a template ({error}); write a literal brace as '{{{{' or '}}}}'."
        ) from None
    known = ("nums", "target")
    # A format or conversion, as in {nums!r}, is kept in the name so that it is refused by name too.
    found = [
        field + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        for _, field, spec, conversion in parts
        if field is not None
    ]
    for field in found:
        if field not in known:
            raise UserError(
                f"The Countdown prompt has the placeholder {{{field}}}; it can have only {{nums}} "
                f"and {{target}} (write a literal brace as '{{{{' or '}}}}')."
                f"{nearest(field, known)}"
            )
    for field in known:
        if field not in found:
            raise UserError(
                f"The Countdown prompt lacks the placeholder {{{field}}}; without it the model "
                "never sees what it has to solve."
            )
