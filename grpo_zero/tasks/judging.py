"""Verdicts of whole groups, by whichever way a task judges: answer by answer, a group at once, in processes of their own."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_zero.tasks.base import Group, Task
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.types import Verdict


def judge_groups(task: Task, groups: Sequence[Group]) -> list[list[Verdict]]:
    """A verdict for every answer of every group, in order."""
    verify_group = getattr(task, "verify_group", None)
    if isinstance(task, IsolatedTask):
        return task.verify_groups(groups)
    if verify_group is not None:
        return [verify_group(*group) for group in groups]
    return [
        [task.verify(problem, text, finished=is_finished) for text, is_finished in group] for problem, group in groups
    ]
