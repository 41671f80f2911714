"""Peak memory of the process."""

from __future__ import annotations

import math
import sys
from pathlib import Path

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
