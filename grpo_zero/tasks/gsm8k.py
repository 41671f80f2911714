"""GSM8K: grade-school word problems with a whole number as answer (Cobbe et al., 2110.14168)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from grpo_zero.errors import UserError, nearest
from grpo_zero.tasks.final_answer import lenient_answer, strict_answer
from grpo_zero.tasks.numbers import numbers
from grpo_zero.tasks.question_files import read_questions
from grpo_zero.tasks.row_files import Row
from grpo_zero.types import Problem, Verdict

MARK = "####"
"""What stands before the final answer, in the data and by default in the model's text."""
DEFAULT_PROMPT = (
    "{question}\n\nWork it out step by step. Then write the answer, as a number alone, on a last line that begins "
    f"with {MARK}."
)
"""The default wording; ``{question}`` is filled in from the row."""
FORMAT_REWARD = 0.1
"""Paid for exactly one mark with a number behind it."""
ANSWER_REWARD = 1.0
"""Paid for a right answer by the rule that trains."""
RULES = {"strict": strict_answer, "lenient": lenient_answer}
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")


class GSM8KTask:
    """Rows are ``{"question": ..., "answer": "... #### 18"}``; both rules are always reported, one of them is paid."""

    name = "gsm8k"
    example = None

    def __init__(
        self,
        prompt: str = DEFAULT_PROMPT,
        system_prompt: str | None = None,
        response_start: str = "",
        answer_rule: str = "strict",
        answer_mark: str = MARK,
    ) -> None:
        """``prompt`` is a template with ``{question}``; ``system_prompt`` None sends none.

        Args:
            response_start: text with which the prompt begins the response.
            answer_rule: ``strict`` or ``lenient`` (``tasks/final_answer.py``): which one is paid.
            answer_mark: what stands before the final answer.

        Raises:
            UserError: no ``{question}`` in the prompt, no such rule, or an empty mark.
        """
        if "{question}" not in prompt:
            raise UserError("The GSM8K prompt lacks the placeholder {question}; without it the model sees no question.")
        if answer_rule not in RULES:
            raise UserError(
                f"The GSM8K answer rule is {answer_rule!r}; it can be {' or '.join(RULES)}.{nearest(answer_rule, RULES)}"
            )
        if not answer_mark.strip():
            raise UserError(f"The GSM8K answer mark is {answer_mark!r}; give a word or sign, as in {MARK}.")
        self.prompt, self.system_prompt, self.response_start = prompt, system_prompt, response_start
        self.answer_rule, self.answer_mark = answer_rule, answer_mark

    def load(self, path: str, *, test_size: int, **generator: Any) -> tuple[list[Row], list[Row], dict[str, int]]:
        """Rows to train on, held-out rows, and how many (``question_files.read_questions``)."""
        if generator:
            raise UserError("data.path is generate, but GSM8K has no generator: give a folder with its files.")
        return read_questions(path, ("question", "answer"), test_size)

    def problem(self, row: Mapping[str, Any]) -> Problem:
        """Make the question of one row. Raises ``UserError`` for a row without a question or a readable answer."""
        question, answer = row.get("question"), row.get("answer")
        if not isinstance(question, str) or not question.strip():
            raise UserError(f"A GSM8K row needs a question; this one is {_shown(row)}: remove or correct it.")
        gold = gold_answer(answer) if isinstance(answer, str) else None
        if gold is None:
            raise UserError(
                f"A GSM8K answer has to end with {MARK} and one number; that of {question[:60]!r} is {_shown(answer)}: "
                "remove or correct the row."
            )
        messages = [{"role": "user", "content": self.prompt.replace("{question}", without_marks(question))}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        key = " ".join(question.split())
        return Problem(tuple(messages), self.response_start, {**row, "gold": gold}, key, num_steps(str(answer)))

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """Parts ``format`` (0.1 or 0) and ``answer`` (1.0 or 0); ``notes``: which rules find the right answer. Never raises."""
        gold = problem.row["gold"]
        found = {name: rule(completion, self.answer_mark, finished) for name, rule in RULES.items()}
        paid = found[self.answer_rule]
        is_marked = completion.count(self.answer_mark) == 1 and found["strict"] is not None
        parts = {"format": FORMAT_REWARD * is_marked, "answer": ANSWER_REWARD * (paid == gold)}
        reason = "right" if paid == gold else "no answer" if paid is None else f"{_text(paid)}, not {_text(gold)}"
        notes = {name: float(answer == gold) for name, answer in found.items()}
        return Verdict(sum(parts.values()), parts, reason, correct=paid == gold, notes=notes)


def gold_answer(answer: str) -> Fraction | None:
    """The number after the only mark of a reference solution; None where there is no such number."""
    _, mark, last = answer.rpartition(MARK)
    found = list(numbers(last)) if mark else []
    return found[0].value if len(found) == 1 and len(last.split()) == 1 else None


def num_steps(answer: str) -> str:
    """How long the reference solution is: its lines before the mark, a step each (2 to 8 as a rule, 2110.14168, section 2)."""
    count = sum(1 for line in answer.rpartition(MARK)[0].splitlines() if line.strip())
    return f"{count} step" if count == 1 else f"{count} steps"


def without_marks(text: str) -> str:
    """Without the calculator's ``<<48/2=24>>``, which would leak a way of writing that the model need not learn."""
    return _CALCULATOR.sub("", text)


def _text(value: Fraction) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
