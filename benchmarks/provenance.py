"""Which code a result was measured with."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """The checkout's commit, with ``+`` behind it when tracked files other than results have changed since."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return _git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()
