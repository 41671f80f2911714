"""Memory that was freed is used again without page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from grpo_zero.allocator import keep_freed_memory

if {keep}:
    assert keep_freed_memory()
for _ in range(3):  # the default thresholds adapt to what was freed
    blocks = [torch.ones(2**22) for _ in range(8)]
    del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks = [torch.ones(2**22) for _ in range(7)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
@pytest.mark.parametrize("keep", [True, False])
def test_blocks_that_were_freed_are_used_again(keep: bool) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(keep=keep)], capture_output=True, text=True, check=True
    )
    num_pages = 7 * 4 * 2**22 // 4096
    assert (int(found.stdout) < num_pages // 100) == keep, found.stdout
