"""Numbers in a model's text, as exact fractions: thousands commas, currency, decimals, fractions, LaTeX. Linear in the text.

A number is read whole or not at all: scientific notation, powers and joined digits of other scripts are no numbers here, so that
``1e-1`` is never read as 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 40
"""Of one number; a longer run of digits is not read."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)"
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?<![0-9A-Za-z)\]}}.%])-)?  # after a digit or a bracket it subtracts, as in 10-4
    \\?\$?
    (?<![0-9A-Za-z._^])(?<![0-9][eE][-+])  # not inside a number or a word
    (?P<top>{_DECIMAL})
    (?:\s?/\s?(?P<bottom>{_DECIMAL}))?
    (?![0-9_^\u00b2\u00b3\u00b9\u2070-\u2079])  # nor a part of a longer one, nor a base
    (?!\.[0-9])
    (?![eE][-+]?[0-9])
    """,
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\[dt]?frac\s?(?:\{\s?([0-9]+)\s?\}|([0-9]))\s?(?:\{\s?([0-9]+)\s?\}|([0-9]))")
_PLAIN = ((r"\!", ""), (r"\,", ""), ("{,}", ","), ("**", " "), ("\u2212", "-"))
"""Decoration that stands within or around numbers, and what is read in its place."""


@dataclass(frozen=True, slots=True)
class Found:
    """A number in a text."""

    value: Fraction
    ends_text: bool
    """Nothing but decoration follows, so a text that was cut may have cut the number."""


def numbers(text: str) -> Iterator[Found]:
    """Every number in ``text``, in order."""
    text = _undecorated(text)
    return (_found(match, text) for match in _NUMBER.finditer(text) if _is_readable(match))


def last_number(text: str) -> Found | None:
    """The last number in ``text``."""
    text = _undecorated(text)
    last = None
    for match in _NUMBER.finditer(text):
        if _is_readable(match):
            last = match
    return None if last is None else _found(last, text)


def first_number(text: str) -> Found | None:
    """The first number in ``text``."""
    return next(numbers(text), None)


def _undecorated(text: str) -> str:
    for old, new in _PLAIN:
        text = text.replace(old, new)
    return _FRACTION.sub(_plain_fraction, text)


def _plain_fraction(match: re.Match[str]) -> str:
    """``1/2``; behind a number or a word as one of its own, behind a sign as what the sign stands for."""
    before = match.string[max(0, match.start() - 1) : match.start()]
    space = " " if before.isalnum() or before in (".", ")", "]", "}") else ""
    return f"{space}{match[1] or match[2]}/{match[3] or match[4]}"


def _is_readable(match: re.Match[str]) -> bool:
    """Not too long, and not divided by zero."""
    bottom = match["bottom"]
    if len(match["top"]) > MAX_DIGITS or len(bottom or "") > MAX_DIGITS:
        return False
    return bottom is None or any(digit in bottom for digit in "123456789")


def _found(match: re.Match[str], text: str) -> Found:
    value = Fraction(match["top"].replace(",", "")) / Fraction((match["bottom"] or "1").replace(",", ""))
    end = len(text.rstrip(" \t\r\n.,$%*"))
    return Found(-value if match["sign"] else value, match.end() >= end)
