"""Freed memory stays with the process, so the next step does not have it zeroed by the kernel again.

By default glibc gives the end of the heap back when it is freed, and blocks above a threshold at once. A step frees and asks
again for gigabytes of gradients and activations, and each return costs a page fault per 4 KiB. Blocks of more than 32 MiB, the
most that glibc can be told, still go back: kept as well, they would cut the heap into pieces that fit nothing, and memory would
grow. Gradients of that size are kept by the optimizer instead.

Around an evaluation, whose many answers need blocks of other sizes, all that is free goes back.

With ``training.reuse_memory: false`` blocks of more than 4 MiB go back when they are freed, and all that is free does before
sampling, before each micro-batch and before its head: each asks for blocks of other sizes, and would grow the heap around the
holes that those before it left.
"""

from __future__ import annotations

import ctypes
import gc
import platform

LARGEST_KEPT_BYTES = 32 * 2**20
"""A freed block that is larger goes back to the system, whatever malloc is told."""
SMALL_BYTES = 4 * 2**20
"""What is kept where memory matters more than time."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names and numbers of glibc's malloc.h; mallopt(3)."""


def keep_freed_memory(largest_bytes: int = LARGEST_KEPT_BYTES) -> bool:
    """Tell glibc's malloc to keep freed blocks of up to ``largest_bytes``; returns whether it will.

    Any other C library is left as it is.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    top_bytes = 2**31 - 1 if largest_bytes == LARGEST_KEPT_BYTES else largest_bytes
    return bool(mallopt(_M_MMAP_THRESHOLD, largest_bytes)) and bool(mallopt(_M_TRIM_THRESHOLD, top_bytes))


def give_back_freed_memory() -> bool:
    """Return what is free to the system, wherever it lies in the heap; returns whether glibc was asked to. malloc_trim(3)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    return True


def empty_caches() -> None:
    """After memory ran out: give back what is only kept, by PyTorch on its devices and by malloc."""
    import torch  # only here: who asks has it loaded

    gc.collect()  # an error's traceback may lie in a cycle, with the tensors of its frames
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
    give_back_freed_memory()
