"""Where the seconds and the memory of a step go: stages name what they do, and whoever listens gets the sums. No torch here."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from grpo_zero.observe.memory import PeakMemory

_CLOCK: ContextVar[PhaseClock | None] = ContextVar("phase clock", default=None)
_WATCHER: ContextVar[Callable[[str], object] | None] = ContextVar("phase watcher", default=None)


class PhaseClock:
    """Sums over phases. A phase within another counts for itself alone: seconds add up to the whole.

    Args:
        wait: called where a phase begins or ends; on a GPU it has to wait for the device.
        memory: also take each phase's peak, by resetting the process's or device's own; None = leave that alone.
    """

    def __init__(self, wait: Callable[[], object] = lambda: None, memory: PeakMemory | None = None) -> None:
        self.wait, self.memory = wait, memory
        self.seconds: dict[str, float] = defaultdict(float)
        self.peak_bytes: dict[str, int] = defaultdict(int)
        self._open: list[str] = []
        self._mark = 0.0

    @contextmanager
    def listen(self) -> Iterator[PhaseClock]:
        """Within, phases report to this clock."""
        token = _CLOCK.set(self)
        try:
            yield self
        finally:
            _CLOCK.reset(token)

    @contextmanager
    def run(self, name: str) -> Iterator[None]:
        """One phase."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        """What has passed since the last border goes to the innermost open phase."""
        self.wait()
        now = time.perf_counter()
        if self._open:
            name = self._open[-1]
            self.seconds[name] += now - self._mark
            if self.memory:
                self.peak_bytes[name] = max(self.peak_bytes[name], self.memory.read())
        if self.memory:
            self.memory.reset()
        self._mark = time.perf_counter()


@contextmanager
def watched(watcher: Callable[[str], object]) -> Iterator[None]:
    """Within, ``watcher`` is told the name of each phase that begins."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what happens within: ``prefill``, ``decode``, ``verify``, ``update``, ``optimizer``."""
    watcher, clock = _WATCHER.get(), _CLOCK.get()
    if watcher:
        watcher(name)
    if clock is None:
        yield
        return
    with clock.run(name):
        yield
