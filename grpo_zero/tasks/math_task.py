"""Mathematics with answers that are more than a number: fractions, roots, intervals, sets, units, by the package math-verify.

The answer is the last ``\\boxed{...}`` after the reasoning. Whether it equals the gold is math-verify's word, asked with the gold
first: it takes the interval (1, 2) for a gold of 1 < x < 2, and not the other way round. Its own time limit needs an alarm signal
and so the main thread; it is off, and ``time_limit_s`` asks for a process of its own instead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from grpo_zero.errors import UserError, named, shown
from grpo_zero.tasks.final_answer import last_box
from grpo_zero.tasks.question_files import read_questions
from grpo_zero.tasks.row_files import Row
from grpo_zero.tasks.tags import CLOSE_THINK
from grpo_zero.tasks.user_task import failure
from grpo_zero.types import Problem, Verdict

DEFAULT_PROMPT = "{question}\n\nReason step by step, and put the final answer, alone, within \\boxed{}."
"""The default wording; ``{question}`` is filled in from the row."""
MAX_CHARACTERS = 500
"""Of an answer; parsing takes time that grows faster than the text. The longest of MATH has fewer than 200."""
QUESTION_COLUMNS = ("problem", "question", "prompt")
ANSWER_COLUMNS = ("answer", "solution")
"""Where a row's question and gold stand; the first one that it has."""
NO_ANSWERS = ("", "n/a", "na", "nan", "none", "null", "inf", "?", "-", "...")
"""Golds that stand for a missing one."""


class MathTask:
    """Rows are ``{"problem": ..., "answer": "\\\\frac{1}{2}"}``, or with a ``solution`` that holds a box."""

    name = "math"
    time_limit_s = 5.0
    """Limit an answer where the configuration has none: a tower of powers takes for ever."""

    def __init__(
        self, prompt: str = DEFAULT_PROMPT, system_prompt: str | None = None, response_start: str = ""
    ) -> None:
        """``prompt`` is a template with ``{question}``; ``system_prompt`` None sends none.

        Raises ``UserError`` where there is no ``{question}``, or the package math-verify is not installed.
        """
        if "{question}" not in prompt:
            raise UserError("The math prompt lacks the placeholder {question}; without it the model sees no question.")
        _library()
        self.prompt, self.system_prompt, self.response_start = prompt, system_prompt, response_start

    def load(self, path: str, *, test_size: int, **generator: Any) -> tuple[list[Row], list[Row], dict[str, int]]:
        """Rows to train on, held-out rows, and how many (``question_files.read_questions``)."""
        if generator:
            raise UserError("data.path is generate, but the task math has no generator: give a file or a folder.")
        return read_questions(path, (), test_size, key=_question)

    def problem(self, row: Mapping[str, Any]) -> Problem:
        """Make the question of one row.

        Raises ``UserError`` for a row without a question, and for one whose gold the checker does not find equal to itself: it
        would pay nothing, or everything.
        """
        question, gold = _question(row), _gold(row)
        if not question:
            raise UserError(
                f"A math row needs a question in one of {', '.join(QUESTION_COLUMNS)}; this one is {shown(dict(row))}: remove "
                "or correct it."
            )
        if gold is None or not is_usable(gold):
            raise UserError(
                f"The answer of {question[:60]!r} is {shown(gold)}, which cannot be read; expected LaTeX or a number in answer, "
                "or a solution with \\boxed{}: remove or correct the row."
            )
        messages = [{"role": "user", "content": self.prompt.replace("{question}", question)}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return Problem(tuple(messages), self.response_start, {**row, "gold": gold}, " ".join(question.split()))

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """Part ``answer``: 1 where the boxed answer equals the gold, else 0. A box that a cut left open is none. Never raises."""
        before, closed, after = completion.partition(CLOSE_THINK)
        answer = last_box(after if closed else before)
        if answer is None:
            return _wrong("no boxed answer" if finished else "cut off before a boxed answer")
        if len(answer) > MAX_CHARACTERS:
            return _wrong(f"an answer of {len(answer)} characters, more than {MAX_CHARACTERS}")
        gold = problem.row["gold"]
        try:
            is_right = equals(gold, answer)
        except Exception as error:  # the package's parsers, on any text a model may write
            return failure(f"math-verify raised {named(error)}")
        if not is_right:
            return _wrong(f"{shown(answer)}, not {shown(gold)}")
        return Verdict(1.0, {"answer": 1.0}, "right", correct=True)

    def example(self, row: Mapping[str, Any]) -> str:
        """The gold in a box."""
        return f"\\boxed{{{_gold(row)}}}"


def equals(gold: str, answer: str) -> bool:
    """Whether math-verify finds ``answer`` equal to ``gold``. Not symmetric."""
    parsed = _parsed(answer)
    return bool(parsed) and _library().verify(list(_parsed_gold(gold)), parsed, timeout_seconds=None)


@cache
def is_usable(gold: str) -> bool:
    """Whether the gold is an answer, can be parsed into more than its own text, and is equal to itself."""
    if gold.strip().lower() in NO_ANSWERS or len(gold) > MAX_CHARACTERS or "\n" in gold.strip():
        return False
    try:
        return any(not isinstance(part, str) for part in _parsed_gold(gold)) and equals(gold, gold)
    except Exception:  # see verify; the caller names the row
        return False


@cache
def _parsed_gold(gold: str) -> tuple[Any, ...]:
    return tuple(_parsed(gold))


def _parsed(answer: str) -> list[Any]:
    library = _library()
    kinds = [library.LatexExtractionConfig(boxed_match_priority=0), library.ExprExtractionConfig()]
    return library.parse(f"\\boxed{{{answer}}}", kinds, parsing_timeout=None)


@cache
def _library() -> Any:
    try:
        import math_verify  # optional, and slow to import
    except ImportError as error:
        raise UserError("The task math needs the package math-verify: run `pip install math-verify`.") from error
    # It warns that its time limit is off. That is meant: see above.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return math_verify


def _question(row: Mapping[str, Any]) -> str:
    """Empty where the row has none."""
    found = next((row[name] for name in QUESTION_COLUMNS if name in row), None)
    return found.strip() if isinstance(found, str) else ""


def _gold(row: Mapping[str, Any]) -> str | None:
    """The boxed part of the answer where it has a box; a solution must have one."""
    for name in ANSWER_COLUMNS:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str):
            box = last_box(value)
            if box is not None or name == "answer":
                return value.strip() if box is None else box
    return None


def _wrong(reason: str) -> Verdict:
    return Verdict(0.0, {"answer": 0.0}, reason)
