"""What a model wrote, as text that can do nothing where it is shown: no escapes, no control or direction characters."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories: control (escape among them), format (direction marks), surrogates, private, unassigned, separators of
lines and paragraphs."""


def harmless(text: str) -> str:
    """The text with line breaks and tabs as they are and every other harmful character replaced; a terminal or an HTML page,
    once escaped, shows it and does nothing else."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _HARMFUL else REPLACEMENT for char in text
    )


def one_line(text: str) -> str:
    """``harmless`` text with every run of white space as one space."""
    return " ".join(harmless(text).split())
