"""What the tables in README.md and docs/ are made of."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def wrapped(text: str) -> str:
    """Lines of at most 130 characters."""
    return "\n".join(textwrap.wrap(text, 130, break_long_words=False, break_on_hyphens=False))


def interval(facts: dict[str, float], name: str) -> str:
    """A share in percent with its 95 % interval."""
    low, high = 100 * facts[f"{name}_low"], 100 * facts[f"{name}_high"]
    return f"{100 * facts[name]:.1f} % ({low:.1f} to {high:.1f})"


def load(name: str) -> dict[str, Any]:
    """A committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def mean(values: Any) -> float:
    """Of shares, in percent."""
    values = list(values)
    return 100 * sum(values) / len(values)


def processor(facts: dict[str, Any]) -> str:
    """What it was measured on."""
    return facts["machine"]["processor"]
