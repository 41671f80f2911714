"""The one exception for mistakes a user can make and mend, and what its messages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input: one sentence that says what was given, what was expected and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the known name closest to ``name``, or an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def named(error: Exception) -> str:
    """An exception in one line, for a message."""
    return f"{type(error).__name__}: {_one_line(str(error))}"


def shown(value: object) -> str:
    """A value in one short line, for a message."""
    return _one_line(repr(value))


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:117] + "..."
