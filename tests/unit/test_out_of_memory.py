"""Errors that say memory ran out, as the libraries raise them; and work begun again with less."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

from grpo_zero.out_of_memory import OutOfMemory, is_out_of_memory, with_less

CUDA = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 8.31 MiB is free."


def raised(work) -> BaseException:
    with pytest.raises((RuntimeError, MemoryError, ValueError)) as caught:
        work()
    return caught.value


@pytest.mark.parametrize(
    "work",
    [
        lambda: torch.empty(2**60, dtype=torch.uint8),
        lambda: np.empty(2**60, dtype=np.uint8),
        lambda: bytearray(2**60),
    ],
    ids=["torch on a CPU", "NumPy", "Python"],
)
def test_real_shortages_are_recognised(work) -> None:
    assert is_out_of_memory(raised(work))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(CUDA),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.10 GB)"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes."),
        OutOfMemory("sampling", "?"),
    ],
)
def test_shortages_of_other_machines_are_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("work", [lambda: torch.ones(2) @ torch.ones(3), lambda: torch.ones(2).view(3)])
def test_other_errors_are_not(work) -> None:
    assert not is_out_of_memory(raised(work))
    assert not is_out_of_memory(OSError("out of memory"))


def test_work_begins_again_with_nothing_of_the_failed_try_left() -> None:
    """An error's traceback holds the frames, and these the tensors: they must be gone before the next try."""
    size, alive, tried = 8, [], []

    def work() -> int:
        tried.append(size)
        held = torch.ones(size)
        alive.append(weakref.ref(held))
        if size > 2:
            torch.empty(2**60, dtype=torch.uint8)
        return size

    def make_smaller() -> bool:
        nonlocal size
        assert [reference() for reference in alive] == [None] * len(alive)
        size //= 2
        return True

    gc.disable()
    try:
        assert with_less(work, make_smaller, "the test") == 2
    finally:
        gc.enable()
    assert tried == [8, 4, 2]


def test_with_nothing_left_to_lower_it_says_what_was_going_on() -> None:
    with pytest.raises(OutOfMemory, match=r"out of memory in the test: .*can't allocate memory") as caught:
        with_less(lambda: torch.empty(2**60, dtype=torch.uint8), lambda: False, "the test")
    assert caught.value.stage == "the test"


def test_other_errors_travel() -> None:
    with pytest.raises(RuntimeError, match="shape"):
        with_less(lambda: torch.ones(2).view(3), lambda: pytest.fail("nothing is lowered"), "the test")
