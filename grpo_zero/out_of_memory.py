"""Running out of memory: how it shows, and how work is done again with less. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")
PHRASES = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""In a RuntimeError's text: of CUDA and Apple's mps; of PyTorch's CPU allocator, and of that on Windows; of cuBLAS."""


class OutOfMemory(RuntimeError):
    """Memory ran out, and nothing was left to lower.

    Args:
        stage: what was going on: ``sampling`` or ``the update``, or a part of it.
        cause: the text of the error that said so.
    """

    def __init__(self, stage: str, cause: str) -> None:
        super().__init__(f"out of memory in {stage}: {cause}")
        self.stage, self.cause = stage, cause


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch, NumPy or Python says that there is no memory left."""
    if isinstance(error, MemoryError | OutOfMemory):
        return True
    # torch's class by its name: a command that needs no torch does not import it.
    is_named = type(error).__name__ == "OutOfMemoryError"
    return is_named or (isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in PHRASES))


def with_less(work: Callable[[], ResultT], make_smaller: Callable[[], bool], stage: str) -> ResultT:
    """``work()``, begun again each time that memory runs out and ``make_smaller()`` finds something to lower.

    ``work`` must leave nothing behind that a second try would see, or ``make_smaller`` must undo it.

    Raises:
        OutOfMemory: nothing was left to lower.
    """
    while True:
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            cause = str(error)
        # Not within `except`: there the error's traceback still holds every tensor of the failed try.
        if not make_smaller():
            raise OutOfMemory(stage, cause)
