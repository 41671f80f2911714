"""``grpo-zero check-task``: tell the author of a task, before a model is asked, what is wrong with it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from grpo_zero.errors import UserError
from grpo_zero.observe.terminal import show
from grpo_zero.tasks import TASKS, Task
from grpo_zero.types import Problem, Verdict

NUM_ROWS = 20
"""Rows that are tried."""
SLOW_S = 0.1
"""Seconds for one answer above which verifying costs more than it should."""
TRIALS = {
    "the empty text": "",
    "white space": " \n",
    "other scripts": "ответ 四十二 ٤٢ \u202e\ufffd",
    "a control character": "\x1b[31m\x00",
    "a tag bomb": "<answer>" * 1000,
    "100 kB of digits": "7" * 100_000,
}
"""Texts that a model may write and that no task should pay."""


def check_task(task: Task, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Try the task on its first rows; what is wrong, in sentences with the sample at fault.

    Args:
        task: any; ``example(row)`` of a user's file is taken for a right answer.
        rows: of ``task.load``, at least one.
    """
    problems = [task.problem(row) for row in rows[:NUM_ROWS]]
    found = list(_distinct(task, rows))
    verdicts: list[Verdict] = []
    for problem in problems:
        if any(verdict.failed for verdict in verdicts):
            break  # seen enough, and every further one may take its whole time
        for what, text in _texts(problem).items():
            start = time.perf_counter()
            verdict = task.verify(problem, text)
            seconds = time.perf_counter() - start
            verdicts.append(verdict)
            found += _faults(problem, what, verdict, seconds)
            if not verdict.failed and not _same(task.verify(problem, text), verdict):
                found.append(
                    f"verify() says something else the second time for {what}, in answer to {_question(problem)}."
                )
    found += _right_answers(task, problems, verdicts)
    return list(dict.fromkeys(found))


def report(task: Task, rows: Sequence[dict[str, Any]]) -> None:
    """Print what was tried and found. Raises ``UserError`` where something is wrong."""
    problem = task.problem(rows[0])
    task.verify(problem, "42")  # the first call starts the process that verifies
    start = time.perf_counter()
    task.verify(problem, "42")
    micros = 1e6 * (time.perf_counter() - start)
    show(
        f"{task.name}: {len(rows)} rows; verifying takes {micros:,.0f} microseconds, in a process of its own; the first question:"
    )
    for message in problem.messages:
        show(f"  {message['role']}: {message['content']}")
    found = check_task(task, rows)
    for sentence in found:
        show(f"wrong: {sentence}")
    if found:
        raise UserError(f"{task.name} has {len(found)} faults, named above: mend them, and check again.")
    show(f"nothing wrong was found on {min(len(rows), NUM_ROWS)} rows")


def _texts(problem: Problem) -> dict[str, str]:
    prompt = "\n".join(message["content"] for message in problem.messages)
    return TRIALS | {"the prompt itself": prompt, "the beginning that the prompt gives": problem.response_start}


def _distinct(task: Task, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    keys = {task.problem(row).key for row in rows[:1000]}
    if len(keys) == 1 < len(rows):
        yield f"all questions are the same: {_question(task.problem(rows[0]))}."


def _faults(problem: Problem, what: str, verdict: Verdict, seconds: float) -> Iterator[str]:
    if verdict.failed:
        yield f"{verdict.reason}, for {what}."
    elif verdict.correct:
        yield f"verify() finds {what} right (reward {verdict.reward:g}), in answer to {_question(problem)}."
    if seconds > SLOW_S:
        yield f"verify() took {seconds:.1f} s for {what}: set data.verify_timeout_s, or make it faster."


def _right_answers(task: Task, problems: Sequence[Problem], verdicts: Sequence[Verdict]) -> Iterator[str]:
    if task.example is None:
        rewards = {verdict.reward for verdict in verdicts if not math.isnan(verdict.reward)}
        if len(rewards) == 1 and task.name.partition(":")[0] not in TASKS:
            yield (
                f"every text that was tried gets the reward {rewards.pop():g}: add example(row), a completion that is right, so "
                "that it can be told from the others."
            )
        return
    for problem in problems:
        try:
            text = task.example(dict(problem.row))
        except Exception as error:
            yield f"example() raised {type(error).__name__}: {error}, for {_question(problem)}."
            return
        verdict = task.verify(problem, text)
        if not verdict.correct:
            yield (
                f"verify() does not find example() right: {_short(repr(text))} gets the reward {verdict.reward:g} "
                f"({verdict.reason}), in answer to {_question(problem)}."
            )


def _same(a: Verdict, b: Verdict) -> bool:
    return a.reward == b.reward or (math.isnan(a.reward) and math.isnan(b.reward))


def _question(problem: Problem) -> str:
    return _short(repr(problem.messages[-1]["content"]))


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
