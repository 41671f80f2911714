"""Which code a result was measured with."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str:
    """The checkout's commit, with ``+`` behind it when tracked files have changed since."""
    root = Path(__file__).parents[1]
    name = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=8", "--exclude=*"]
    return subprocess.run(name, check=True, capture_output=True, text=True).stdout.strip()
