"""Peak memory of the process, whole or from a moment on, and what the machine has left."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Protocol

_GIB = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")


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
    """Main memory that this process may still take: the machine's, or less where a control group says so (a container).

    None where neither is known.
    """
    left = [int(size) * 1024 for name, size in _fields(Path("/proc/meminfo")) if name == "MemAvailable:"]
    limit = _CGROUP / "memory.max"
    if limit.is_file() and limit.read_text().strip() != "max":
        # Cached files count as used, and are given up when memory is asked for.
        cached = sum(int(size) for name, size in _fields(_CGROUP / "memory.stat") if name == "inactive_file")
        left.append(int(limit.read_text()) - int((_CGROUP / "memory.current").read_text()) + cached)
    return min(left, default=None)


def _fields(path: Path) -> list[list[str]]:
    """The first two words of each line; nothing where there is no such file."""
    return [line.split()[:2] for line in path.read_text().splitlines()] if path.is_file() else []
