"""Memory that was freed is used again without page faults."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from grpo_zero.allocator import LARGEST_KEPT_BYTES, SMALL_BYTES

PROGRAM = """
import ctypes
import resource
from grpo_zero.allocator import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def page_faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(24 * 2**20) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, 24 * 2**20)
    for block in reversed(blocks):
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {largest_bytes}:
    assert keep_freed_memory({largest_bytes})
print([page_faults() for _ in range(4)])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
@pytest.mark.parametrize(("largest_bytes", "keep"), [(LARGEST_KEPT_BYTES, True), (SMALL_BYTES, False), (0, False)])
def test_blocks_that_were_freed_are_used_again(largest_bytes: int, keep: bool) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(largest_bytes=largest_bytes)], capture_output=True, text=True, check=True
    )
    num_pages = 4 * 24 * 2**20 // 4096
    *_, last = json.loads(found.stdout)
    assert (last < num_pages // 100) == keep, found.stdout


HOLES = """
import ctypes
from pathlib import Path
from grpo_zero.allocator import give_back_freed_memory, keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def resident_mib() -> float:
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024

keep_freed_memory()
blocks = [libc.malloc(2**20) for _ in range(200)]
for block in blocks:
    ctypes.memset(block, 1, 2**20)
for block in blocks[1:]:
    libc.free(block)  # the first one stays, at the bottom
held = resident_mib()
assert give_back_freed_memory()
print(held - resident_mib())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
def test_what_is_kept_can_be_given_back() -> None:
    found = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert float(found.stdout) > 180
