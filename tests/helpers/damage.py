"""Files that were cut, flipped or made to harm: strategies for property tests. Nothing is stored, all cases are made here."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

JUNK: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 2**70, 10**400, -0.5, 1.5, 1e300, float("inf"), float("nan")),
    *("", "a", "0", "\0", "\ud800", "\x1b[2J", "../../etc/passwd", "{{ 1 // 0 }}", "x" * 1000, "<end>"),
    *([], [[]], [None], [0], ["a", "b"], [[0, 1]], {}, {"a": 1}, {"": {}}, {"content": 1}, [{"name": "default"}]),
]
"""Values to stand where others are expected."""
WORDS = [0, 1, 2, 24, 255, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
"""Counts, lengths and offsets that lie."""


@st.composite
def damaged_bytes(draw: st.DrawFn, whole: bytes) -> bytes:
    """``whole`` cut, with bytes flipped, with a number overwritten, or with a piece put in or taken out."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        kind = draw(st.sampled_from(["cut", "flip", "word", "half word", "insert", "remove"]))
        if kind == "cut":
            del content[at:]
        elif kind == "flip" and content:
            content[at] ^= draw(st.integers(1, 255))
        elif kind == "word":
            content[at : at + 8] = draw(st.sampled_from(WORDS)).to_bytes(8, "little")
        elif kind == "half word":
            content[at : at + 4] = (draw(st.sampled_from(WORDS)) % 2**32).to_bytes(4, "little")
        elif kind == "insert":
            content[at:at] = draw(st.binary(max_size=9))
        else:
            del content[at : at + draw(st.integers(1, 40))]
    return bytes(content)


@st.composite
def damaged_json(draw: st.DrawFn, whole: Any) -> bytes:
    """The JSON value ``whole`` with one or two of its values replaced, removed or doubled; one time in four as damaged bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged_bytes(json.dumps(whole).encode()))
    value = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        places = _places(value)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        kind = draw(st.sampled_from(["junk", "junk", "remove", "again"]))
        if kind == "junk":
            holder[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
        elif kind == "remove":
            del holder[key]
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
    return json.dumps(value).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every holder and key within."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    found = [(value, key) for key in keys]
    return found + [place for key in keys for place in _places(value[key])]
