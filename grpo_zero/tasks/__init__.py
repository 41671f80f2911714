"""Tasks: questions with a program that checks the answers. ``load_task`` makes one by name."""

from __future__ import annotations

import inspect
from typing import Any

from grpo_zero.errors import UserError, nearest
from grpo_zero.tasks.base import Task
from grpo_zero.tasks.countdown import CountdownTask
from grpo_zero.tasks.gsm8k import GSM8KTask
from grpo_zero.tasks.math_task import MathTask
from grpo_zero.tasks.reasoning_gym_task import ReasoningGymTask
from grpo_zero.tasks.reward_functions import RewardFunctionsTask
from grpo_zero.tasks.user_task import UserTask

TASKS: dict[str, type[Task]] = {
    "countdown": CountdownTask,
    "gsm8k": GSM8KTask,
    "math": MathTask,
    "reasoning_gym": ReasoningGymTask,
    "rewards": RewardFunctionsTask,
}
"""Bundled tasks by name."""


def load_task(name: str, **options: Any) -> Task:
    """Make the bundled task ``name``, or ``reasoning_gym:NAME``, or that of a file ``my_task.py`` or ``my_task.py:ClassName``.

    ``options`` are the arguments of its class. Raises ``UserError`` for an unknown name or option, with the nearest known one,
    and for a file that is no task.
    """
    if ".py" in name:
        own = {"system_prompt", "response_start"}
        for option in options.keys() - own:
            raise UserError(f"data.{option} is not for a task of your own: {name} has its wording itself.")
        return UserTask(name, **options)
    name, colon, dataset = name.partition(":")
    if colon and name == "reasoning_gym":
        options["dataset"] = dataset
    elif colon:
        raise UserError(
            f"Task {name}:{dataset} has a colon, which only reasoning_gym:NAME and my_task.py:ClassName have: leave it out."
        )
    if name not in TASKS:
        known = ", ".join(sorted(TASKS))
        raise UserError(f"Unknown task {name!r}; known tasks: {known}.{nearest(name, TASKS)}")
    accepted = list(inspect.signature(TASKS[name]).parameters)
    for option in options:
        if option not in accepted:
            raise UserError(
                f"Task {name!r} has no option {option!r}; it has {', '.join(accepted)}.{nearest(option, accepted)}"
            )
    return TASKS[name](**options)


__all__ = ["TASKS", "Task", "load_task"]
