"""What a rule says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from grpo_zero.doctor.evidence import Evidence

PAGE = "docs/troubleshooting.md"
Severity = Literal["problem", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
"""Worst first: the run fails its purpose; it wastes much or is about to fail; it looks odd."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnosis."""

    title: str
    """A few words; also the heading of its section in ``docs/troubleshooting.md``."""
    severity: Severity
    diagnosis: str
    """One sentence: what is going wrong."""
    evidence: tuple[str, ...]
    """The numbers it rests on, with their steps."""
    advice: tuple[str, ...]
    """What to try, the likeliest help first; settings as they are typed."""

    @property
    def link(self) -> str:
        """The section to read on in."""
        return f"{PAGE}#{anchor(self.title)}"


Rule = Callable[[Evidence], Finding | None]
"""Looks at the evidence; None when it is content."""


def anchor(heading: str) -> str:
    """A heading's anchor as GitHub makes it."""
    kept = "".join(char for char in heading.lower() if char.isalnum() or char in " -")
    return kept.replace(" ", "-")
