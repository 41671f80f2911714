"""Work that one rendering of a chat template may do, counted where a template could make much of little."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from jinja2.sandbox import SecurityError
from jinja2.utils import Namespace

MAX_WORK = 30_000_000
"""Units of one rendering: about a second, and some hundred megabytes at the very most. A chat of 50,000 characters takes about a
hundredth of it."""
MAX_SECONDS = 10.0
"""Of one rendering, for what is slow and not counted, such as comparing long texts."""
STEP, CALL = 100, 500
"""Units of a round of a loop, and of a call; a character that is made costs 1, an element of a list 20."""
_ELEMENT = 20


class Budget:
    """What is left for a rendering. Every method raises ``SecurityError`` when nothing is."""

    def __init__(self) -> None:
        self.left = MAX_WORK
        self.end_s = time.monotonic() + MAX_SECONDS

    def charge(self, units: float) -> None:
        """Take ``units`` off."""
        self.left -= int(min(units, MAX_WORK + 1))
        if self.left < 0 or time.monotonic() > self.end_s:
            raise SecurityError("more work than a prompt takes")

    def weigh(self, value: Any, times: int = 1) -> None:
        """Take off what it costs to copy, compare or print ``value`` whole: a part that stands in it twice counts twice."""
        weight, todo = 0, [value]
        while todo:
            item = todo.pop()
            if isinstance(item, str | bytes):
                weight += len(item)
            elif isinstance(item, Mapping):
                todo.extend(item)
                todo.extend(item.values())
            elif isinstance(item, Namespace):
                todo.append(vars(item))
            elif isinstance(item, list | tuple | set | frozenset):
                todo.extend(item)
            weight += _ELEMENT
            if weight > self.left:
                break
        self.charge(weight * times)

    def rounds(self, values: Iterable[Any], units: int = 0) -> Iterator[Any]:
        """The values, each for a step and ``units``."""
        for value in values:
            self.charge(STEP + units)
            yield value


_CURRENT: ContextVar[Budget] = ContextVar("budget of the rendering")


def budget() -> Budget:
    """That of the rendering in this thread."""
    return _CURRENT.get()


@contextlib.contextmanager
def fresh_budget() -> Iterator[None]:
    """A full budget for what is rendered in the block."""
    token = _CURRENT.set(Budget())
    try:
        yield
    finally:
        _CURRENT.reset(token)
