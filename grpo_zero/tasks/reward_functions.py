"""Prompts from a file, rewards from functions as TRL takes them.

``f(prompts, completions, **columns) -> list of float or None``. Each completion is judged by itself, as a batch of one, or the
answers to a question together, as one batch. A function that names its parameters gets those; one with ``**kwargs`` gets every
column. None gets token ids: a task sees text.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from grpo_zero.errors import UserError, named, shown
from grpo_zero.tasks.question_files import read_questions
from grpo_zero.tasks.row_files import Row
from grpo_zero.tasks.user_task import failure, load_module, named_class
from grpo_zero.types import Problem, Verdict

RewardFunction = Callable[..., Sequence[float | None]]
TOKEN_IDS = {"prompt_ids", "completion_ids"}
"""What TRL offers besides, and a task never has."""
PROMPT = "prompt"
"""The column that poses the question: a text, or chat messages."""


class RewardFunctionsTask:
    """Rows with a ``prompt`` and any other columns; the reward is the weighted sum of the functions'."""

    name = "rewards"
    example = None

    def __init__(
        self,
        rewards: Sequence[str] = (),
        reward_weights: Sequence[float] | None = None,
        system_prompt: str | None = None,
        response_start: str = "",
        success: float = 1.0,
        reward_batch: str = "answer",
    ) -> None:
        """``rewards`` are ``my_rewards.py:function``.

        Args:
            reward_weights: one for each function; None = 1 each.
            system_prompt: goes before prompts without a system message.
            response_start: text with which the prompt begins the response.
            success: weighted sum from which an answer counts as right.
            reward_batch: what a function gets in one call, ``answer`` or ``group``.

        Raises:
            UserError: no such file or function, or another number of weights.
        """
        if not rewards:
            raise UserError("Task rewards needs data.rewards: at least one function, as in [my_rewards.py:accuracy].")
        self.functions = {where: _function(where) for where in rewards}
        self.weights = [1.0] * len(rewards) if reward_weights is None else list(reward_weights)
        if len(self.weights) != len(self.functions):
            raise UserError(
                f"data.reward_weights has {len(self.weights)} numbers for {len(self.functions)} different functions in "
                "data.rewards: give one each."
            )
        self.system_prompt, self.response_start, self.success = system_prompt, response_start, success
        self.verify_group = self._verify_batch if reward_batch == "group" else None

    def load(self, path: str, *, test_size: int, **generator: Any) -> tuple[list[Row], list[Row], dict[str, int]]:
        """Rows to train on, held-out rows, and how many (``question_files.read_questions``)."""
        if generator:
            raise UserError(
                "data.path is generate, but data.rewards needs rows: give a jsonl file with a column prompt."
            )
        return read_questions(path, (PROMPT,), test_size)

    def problem(self, row: Mapping[str, Any]) -> Problem:
        """The question of one row.

        Raises ``UserError`` for a prompt that is none, or a column that a function needs and is not there.
        """
        posed = row[PROMPT]
        messages = [{"role": "user", "content": posed}] if isinstance(posed, str) else posed
        if not _is_chat(messages):
            raise UserError(
                f"A prompt is {shown(posed)}; expected a text, or a list of messages with role and content."
            )
        if self.system_prompt and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": self.system_prompt}, *messages]
        for where, function in self.functions.items():
            missing = _required(function) - row.keys() - {"prompts", "completions"}
            if missing:
                ids = " A task has no token ids, only text." if missing & TOKEN_IDS else ""
                raise UserError(
                    f"{where} needs {', '.join(sorted(missing))}, but the rows have {', '.join(row)}: name its parameters after "
                    f"columns, or give it a default.{ids}"
                )
        key = json.dumps([messages, {k: v for k, v in row.items() if k != PROMPT}], sort_keys=True, default=repr)
        return Problem(tuple(messages), self.response_start, row, key, named_class(row.get("difficulty")))

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """Parts are the weighted values by function; one that returns None has no part. Never raises."""
        return self._verify_batch(problem, [(completion, finished)])[0]

    def _verify_batch(self, problem: Problem, answers: Sequence[tuple[str, bool]]) -> list[Verdict]:
        """``verify`` for answers to one question in one call.

        A function that raises or returns another number of values fails on all of them; a value that is no number fails on its
        own answer.
        """
        parts: list[dict[str, float]] = [{} for _ in answers]
        failures: dict[int, Verdict] = {}
        for (where, function), weight in zip(self.functions.items(), self.weights, strict=True):
            try:
                said = function(**_arguments(function, problem.row, [text for text, _ in answers]))
            except Exception as error:
                return [failure(f"{where} raised {named(error)}")] * len(answers)
            if not isinstance(said, Sequence) or len(said) != len(answers):
                values = f"{len(said)} values" if isinstance(said, Sequence) else shown(said)
                asked = f"{len(answers)} completion{'s' * (len(answers) > 1)}"
                return [failure(f"{where} returned {values} for {asked}, not one each")] * len(answers)
            for index, value in enumerate(said):
                if value is None or (isinstance(value, Real) and math.isnan(value)):
                    continue
                if not isinstance(value, Real) or not math.isfinite(value):
                    failures.setdefault(index, failure(f"{where} returned {shown(value)}, no finite number"))
                else:
                    parts[index][where.rpartition(":")[2]] = weight * float(value)
        return [failures.get(index) or self._verdict(values) for index, values in enumerate(parts)]

    def _verdict(self, parts: dict[str, float]) -> Verdict:
        if not parts:
            return Verdict(math.nan, {}, "no reward")
        reward = sum(parts.values())
        is_right = reward >= self.success - 1e-9
        return Verdict(reward, parts, "right" if is_right else f"reward {reward:g}", correct=is_right)


def _function(where: str) -> RewardFunction:
    path, _, name = where.rpartition(":")
    if not path:
        raise UserError(f"data.rewards has {where!r}; expected file and function, as in my_rewards.py:accuracy.")
    function = getattr(load_module(path), name, None)
    if not callable(function):
        raise UserError(f"{path} has no function {name}, which data.rewards names.")
    return function


def _parameters(function: RewardFunction) -> Sequence[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _required(function: RewardFunction) -> set[str]:
    named_ones = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in _parameters(function) if p.kind in named_ones and p.default is inspect.Parameter.empty}


def _arguments(function: RewardFunction, row: Mapping[str, Any], completions: Sequence[str]) -> dict[str, list[Any]]:
    """A batch: the row's columns as often as there are completions. To a chat prompt belong chat completions, as in TRL."""
    is_text = isinstance(row[PROMPT], str)
    answers: list[Any] = [text if is_text else [{"role": "assistant", "content": text}] for text in completions]
    columns = {name: [value] * len(answers) for name, value in row.items() if name != PROMPT}
    offered = {"prompts": [row[PROMPT]] * len(answers), "completions": answers, **columns}
    parameters = _parameters(function)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return offered
    return {p.name: offered[p.name] for p in parameters if p.name in offered}


def _is_chat(messages: object) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
            for m in messages
        )
    )
