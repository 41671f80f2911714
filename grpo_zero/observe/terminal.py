"""Text from a model, a dataset or a file, made harmless for a terminal: nothing in it moves the cursor, recolours or retitles.

Files keep the text as it is; what is printed goes through here.
"""

from __future__ import annotations

import re
import sys
from typing import TextIO

_PAYLOAD = r"[^\x00-\x1f\x7f-\x9f]*+"
_ESCAPE = re.compile(
    rf"""
    (?:\x1b\[|\x9b) [0-?]*+ [ -/]*+ [@-~]                               # CSI: colours, cursor, erasing
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]) {_PAYLOAD} (?:\x07|\x1b\\|\x9c)  # OSC, DCS, SOS, PM, APC: titles, links, clipboard
    | \x1b [ -/]*+ [0-~]                                                # two characters or more: charsets, reset
    """,
    re.VERBOSE,
)
"""Escape sequences of ECMA-48 that are whole; of others the control character alone goes, so that no text is swallowed."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Embeddings, overrides and isolates, which can show a text in another order than it has (CVE-2021-42574)."""
_LONE = re.compile("[\ud800-\udfff]")


def harmless(text: str) -> str:
    """``text`` without escape sequences and control characters, but for newline and tab.

    Characters that reorder others are shown by their code, as ``<U+202E>``; lone surrogates, which no terminal takes, become
    U+FFFD. Text that holds none of these comes back equal; so does what was made harmless before.
    """
    text = _CONTROL.sub("", _ESCAPE.sub("", text))
    text = _DIRECTION.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
    return _LONE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """``harmless`` with every run of white space, line ends included, as one space."""
    return " ".join(harmless(text).split())


def show(text: str = "", *, stream: TextIO | None = None) -> None:
    """Print a line of harmless text; characters that the stream cannot encode are shown by their code."""
    stream = sys.stdout if stream is None else stream
    encoding = getattr(stream, "encoding", None) or "utf-8"
    line = harmless(text).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(line + "\n")
    stream.flush()
