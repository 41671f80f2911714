"""Freed memory stays with the process: the second of two equal steps takes no page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from grpo_zero.allocator import keep_freed_memory

def page_faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {keep}:
    assert keep_freed_memory()
page_faults()
print(page_faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
@pytest.mark.parametrize("keep", [True, False])
def test_a_block_that_was_freed_is_used_again(keep: bool) -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM.format(keep=keep)], capture_output=True, text=True, check=True)
    num_pages = 4 * 2**24 // 4096
    assert (int(found.stdout) < num_pages // 100) == keep, found.stdout
