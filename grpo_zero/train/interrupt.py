"""Ctrl-C as a request: finish the step, save, say how to go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

NOTICE = b"\nCtrl-C: finishing this step, then saving (again to stop at once and lose the step)\n"


class Interrupt:
    """Whether Ctrl-C was pressed."""

    is_set = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within the block the first Ctrl-C sets ``is_set``; a second one raises KeyboardInterrupt."""
    interrupt = Interrupt()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if interrupt.is_set:
            raise KeyboardInterrupt
        interrupt.is_set = True
        os.write(2, NOTICE)  # print may be interrupted inside itself

    try:
        previous = signal.signal(signal.SIGINT, on_signal)
    except ValueError:  # not the main thread: nobody to send us Ctrl-C
        yield interrupt
        return
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
