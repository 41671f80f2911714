"""Ctrl-C and SIGTERM as requests: save, say how to go on, and end with a code of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NOTICES = {
    signal.SIGINT: b"\nCtrl-C: finishing this step, then saving (again to stop at once and lose the step)\n",
    signal.SIGTERM: b"\nSIGTERM: saving\n",
}
ERASE = b"\r\x1b[J"
"""The live view's cursor waits at its start: from there to the end of the screen."""


class Terminated(BaseException):
    """SIGTERM came while what runs could be dropped: the weights are still those before it."""


class Interrupt:
    """Which signal asked for an end."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.may_drop: Callable[[], bool] = lambda: False
        """Asked at SIGTERM, whose sender does not wait long: whether ``Terminated`` may be raised right where the program is."""

    @property
    def is_set(self) -> bool:
        return self.signum is not None

    @property
    def exit_code(self) -> int:
        """128 + signal, as shells have it; 0 without."""
        return 0 if self.signum is None else 128 + self.signum


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within the block the first Ctrl-C or SIGTERM sets ``signum``; a second Ctrl-C raises KeyboardInterrupt."""
    interrupt = Interrupt()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if interrupt.is_set and signum == signal.SIGINT:
            raise KeyboardInterrupt
        if not interrupt.is_set:
            erase = ERASE if os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb" else b""
            os.write(2, erase + NOTICES[signal.Signals(signum)])  # print may be interrupted inside itself
        interrupt.signum = signum
        if signum == signal.SIGTERM and interrupt.may_drop():
            raise Terminated

    previous = {}
    try:
        for signum in NOTICES:
            previous[signum] = signal.signal(signum, on_signal)
    except ValueError:  # not the main thread: no signal reaches us
        yield interrupt
        return
    try:
        yield interrupt
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
