"""A task in one file of the user's: ``rows``, ``prompt`` and ``verify``, as three functions or as a class.

    def rows():                       # every question, as a dict; or rows(split) with "train" and "test"
        return [{"word": "apple"}]

    def prompt(row):                  # text, or chat messages
        return f"Spell {row['word']} backwards."

    def verify(row, completion):      # a number, True or False, parts by name, or None for no reward
        return completion.strip() == row["word"][::-1]

Optional: ``example(row)`` (a completion that is right, for `grpo-zero check-task`), ``response_start`` (text that begins every
answer), ``system_prompt``, ``success`` (reward from which an answer counts as right, default 1), and ``difficulty(row)`` (the
class that `grpo-zero eval` counts a question in).
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from grpo_zero.errors import UserError, named, shown
from grpo_zero.tasks.row_files import Row
from grpo_zero.types import Problem, Verdict

PARTS = ("rows", "prompt", "verify")


class UserTask:
    """What a user's file defines, as a task. ``verify`` of the file may do anything; this one never raises."""

    def __init__(self, file: str, system_prompt: str | None = None, response_start: str | None = None) -> None:
        """``file`` is ``my_task.py`` or ``my_task.py:ClassName``; the other two win over the file's own.

        Raises ``UserError`` for a file that cannot be loaded or lacks one of the functions.
        """
        self.name = file
        self.parts = _find_parts(file)
        own_start = getattr(self.parts, "response_start", "")
        self.response_start: str = own_start if response_start is None else response_start
        self.system_prompt = system_prompt or getattr(self.parts, "system_prompt", None)
        self.example = getattr(self.parts, "example", None)
        self.difficulty = getattr(self.parts, "difficulty", None)
        self.success = float(getattr(self.parts, "success", 1.0))
        self.takes_finished = "finished" in inspect.signature(self.parts.verify).parameters

    def load(self, path: str, *, test_size: int, **generator: Any) -> tuple[list[Row], list[Row], dict[str, int]]:
        """Rows of the file; held out are those of ``rows("test")``, else the last ``test_size``. ``path`` is not looked at."""
        if inspect.signature(self.parts.rows).parameters:
            train, test = (
                _rows(self.name, self.parts.rows, "train"),
                _rows(self.name, self.parts.rows, "test")[:test_size],
            )
        else:
            rows = _rows(self.name, self.parts.rows)
            if test_size >= len(rows):
                raise UserError(
                    f"data.test_size is {test_size}, but rows() of {self.name} gives {len(rows)} rows: leave some to train on."
                )
            train, test = rows[: len(rows) - test_size], rows[len(rows) - test_size :]
        held_out = {self.problem(row).key for row in test}
        kept = [row for row in train if self.problem(row).key not in held_out]
        if not kept:
            raise UserError(f"rows() of {self.name} gives no row to train on beside the held-out ones.")
        return kept, test, {"train": len(kept), "test": len(test), "dropped": len(train) - len(kept)}

    def problem(self, row: Mapping[str, Any]) -> Problem:
        """The question of one row.

        Raises ``UserError`` where ``prompt`` raises or returns neither text nor messages, or ``difficulty`` raises.
        """
        try:
            posed = self.parts.prompt(dict(row))
        except Exception as error:
            raise UserError(f"prompt() of {self.name} raised {named(error)} for the row {shown(row)}.") from error
        messages = [{"role": "user", "content": posed}] if isinstance(posed, str) else posed
        is_chat = (
            isinstance(messages, list)
            and messages
            and all(
                isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
                for m in messages
            )
        )
        if not is_chat:
            raise UserError(
                f"prompt() of {self.name} returned {shown(posed)}; expected a text, or a list of messages with role and content."
            )
        if self.system_prompt and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": self.system_prompt}, *messages]
        key = json.dumps(messages, sort_keys=True, ensure_ascii=False)
        return Problem(tuple(messages), self.response_start, row, key, self._difficulty(row))

    def _difficulty(self, row: Mapping[str, Any]) -> str | None:
        if self.difficulty is None:
            return None
        try:
            return named_class(self.difficulty(dict(row)))
        except Exception as error:
            raise UserError(f"difficulty() of {self.name} raised {named(error)} for the row {shown(row)}.") from error

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """What the file's ``verify`` says; where it fails, no reward and the reason."""
        options = {"finished": finished} if self.takes_finished else {}
        try:
            said = self.parts.verify(dict(problem.row), completion, **options)
        except Exception as error:
            return failure(f"verify raised {named(error)}")
        return verdict_of(said, self.success)


def verdict_of(said: object, success: float) -> Verdict:
    """A verdict of what ``verify`` may return; anything else, NaN and infinity are failures, None is no reward."""
    if isinstance(said, Verdict):
        return said
    if said is None:
        return Verdict(math.nan, {}, "no reward")
    parts = dict(said) if isinstance(said, Mapping) else {"reward": said}
    rewards = {str(name): float(value) for name, value in parts.items() if isinstance(value, Real)}
    if not parts or len(rewards) < len(parts) or not all(map(math.isfinite, rewards.values())):
        return failure(f"verify returned {shown(said)}, no finite number")
    reward = sum(rewards.values())
    is_right = reward >= success - 1e-9
    return Verdict(reward, rewards, "right" if is_right else f"reward {reward:g}", correct=is_right)


def named_class(value: object) -> str | None:
    """A difficulty as it is shown: any value as text; None and empty text are none."""
    return None if value is None else str(value).strip() or None


def failure(reason: str) -> Verdict:
    """The verdict where none could be had."""
    return Verdict(math.nan, {}, reason, failed=True)


def _find_parts(file: str) -> Any:
    """The module, or an instance of its class."""
    path, _, class_name = file.partition(":") if not Path(file).is_file() else (file, "", "")
    module = load_module(path)
    classes = [
        thing
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__ == module.__name__ and all(hasattr(thing, p) for p in PARTS)
    ]
    if class_name:
        classes = [thing for thing in classes if thing.__name__ == class_name]
    found: Any = module
    if class_name or (len(classes) == 1 and not all(hasattr(module, part) for part in PARTS)):
        if len(classes) != 1:
            raise UserError(f"{path} has no class {class_name} with {', '.join(PARTS)}: write one, or name another.")
        try:
            found = classes[0]()
        except Exception as error:
            raise UserError(f"{classes[0].__name__}() of {path} raised {named(error)}.") from error
    for part in PARTS:
        if not callable(getattr(found, part, None)):
            raise UserError(
                f"{file} lacks the function {part}; a task has rows(), prompt(row) and verify(row, completion)."
            )
    if isinstance(found, ModuleType):
        names = (*PARTS, "example", "response_start", "system_prompt", "success", "difficulty")
        return SimpleNamespace(**{name: getattr(module, name) for name in names if hasattr(module, name)})
    return found


def load_module(path: str) -> ModuleType:
    """Run a Python file as a module of its own; the files beside it can be imported by it. Raises ``UserError``."""
    file = Path(path)
    if not file.is_file():
        raise UserError(f"There is no file {path}: give a Python file with rows, prompt and verify.")
    spec = importlib.util.spec_from_file_location(f"user_task_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is no Python file: its name has to end with .py.")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be loaded: it raised {named(error)}.") from error
    return module


def _rows(name: str, make: Callable[..., Any], *split: str) -> list[Row]:
    call = f"rows({split[0]!r})" if split else "rows()"
    try:
        rows = list(make(*split))
    except Exception as error:
        raise UserError(f"{call} of {name} raised {named(error)}.") from error
    for row in rows:
        if not isinstance(row, Mapping):
            raise UserError(f"{call} of {name} gave {shown(row)}; expected dicts, one a question.")
    return [dict(row) for row in rows]
