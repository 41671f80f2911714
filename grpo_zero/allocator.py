"""Freed memory stays with the process, so the next step does not have it zeroed by the kernel again.

By default glibc returns every large block when it is freed. A step frees and asks again for gigabytes of gradients and
activations, and each return costs a page fault per 4 KiB. Peak memory is the same: what is kept is used again.
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Names and numbers of glibc's malloc.h; mallopt(3)."""


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to keep what is freed; returns whether it will. Any other C library is left as it is."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
