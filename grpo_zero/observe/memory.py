"""Peak memory of the process, whole or from a moment on, and what the machine has left."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Protocol

_GIB = 1 << 30


def peak_gib() -> float:
    """Highest resident memory of this process so far, GiB; NaN where it cannot be known.

    Linux's ``VmHWM`` comes first: ``ru_maxrss`` of a child starts at its parent's, so a small
    process started by a large one would report the large one's.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / _GIB
    except OSError:
        pass  # No /proc, as on macOS.
    try:
        import resource
    except ImportError:  # Windows.
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / _GIB


class PeakMemory(Protocol):
    """A high-water mark that can be set back."""

    def read(self) -> int:
        """Bytes."""

    def reset(self) -> None:
        """Go on from what is in use now."""


class ProcessPeak:
    """Resident memory of this process (Linux; proc(5): writing 5 to ``clear_refs``). Resets lower ``peak_gib`` too."""

    def read(self) -> int:
        """Bytes."""
        return int(peak_gib() * _GIB)

    def reset(self) -> None:
        """``OSError`` where the system does not allow it."""
        Path("/proc/self/clear_refs").write_text("5")


def process_peak() -> ProcessPeak | None:
    """None where the mark cannot be set back."""
    peak = ProcessPeak()
    try:
        peak.reset()
    except OSError:
        return None
    return peak


def available_bytes() -> int | None:
    """Main memory that can be taken without swapping (Linux's ``MemAvailable``); None where it cannot be known."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] if sizes else None
