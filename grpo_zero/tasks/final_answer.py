"""The final answer of a worked solution, by a strict and a lenient rule. The last answer wins.

Strict: the number that follows the mark at once, on the mark's line. Lenient: that; else what the last ``\\boxed{...}`` holds;
else the last number of the text.
"""

from __future__ import annotations

import re
from fractions import Fraction

from grpo_zero.tasks.numbers import Found, first_number, last_number

_BOX = r"\boxed"
_DECORATION = " \t*:$\\([{"
"""What may stand between the mark and its number, beside a sign."""
_BRACE = re.compile("[{}]")
_BEGINNINGS = (*"0123456789.", "frac", "dfrac", "tfrac", "boxed")


def strict_answer(text: str, mark: str, finished: bool = True) -> Fraction | None:
    """The marked number; None where there is none, or where an unfinished text may have cut it."""
    return _whole(_marked(text, mark), finished)


def lenient_answer(text: str, mark: str, finished: bool = True) -> Fraction | None:
    """The marked, else the boxed, else the last number; None as above."""
    for found in (_marked(text, mark), _boxed(text)):
        if found is not None:
            return _whole(found, finished)
    return _whole(last_number(text), finished)


def _whole(found: Found | None, finished: bool) -> Fraction | None:
    return None if found is None or (found.ends_text and not finished) else found.value


def _marked(text: str, mark: str) -> Found | None:
    """What follows the last mark at once."""
    _, found_mark, last = text.rpartition(mark)
    if not found_mark:
        return None
    line = last.partition("\n")[0]
    bare = line.lstrip(_DECORATION).lstrip("-\u2212").lstrip(_DECORATION)
    if not bare.startswith(_BEGINNINGS):
        return None
    found = first_number(line)
    if found is None:
        return None
    return Found(found.value, found.ends_text and not last[len(line) :].strip())


def _boxed(text: str) -> Found | None:
    """The last number in the last box, if its braces close."""
    box = last_box(text)
    found = last_number(box) if box is not None else None
    return None if found is None else Found(found.value, False)


def last_box(text: str) -> str | None:
    """What the last ``\\boxed{...}`` holds; None where there is no box, or the braces of the last one do not close."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    opening = text.find("{", start + len(_BOX))
    if opening < 0 or text[start + len(_BOX) : opening].strip():
        return None
    depth = 0
    for brace in _BRACE.finditer(text, opening):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[opening + 1 : brace.start()]
    return None
