"""Phases: seconds add up, a phase within another counts for itself, nobody listening costs nothing."""

from __future__ import annotations

import mmap
import time

import pytest

from grpo_zero.observe.memory import process_peak
from grpo_zero.observe.phases import PhaseClock, phase


class Steps:
    """A memory whose peak since the last reset is told by the test."""

    def __init__(self) -> None:
        self.peak = self.now = 0

    def use(self, size: int) -> None:
        self.now = size
        self.peak = max(self.peak, size)

    def read(self) -> int:
        return self.peak

    def reset(self) -> None:
        self.peak = self.now


@phase("inner")
def inner(memory: Steps) -> None:
    memory.use(50)
    time.sleep(0.02)
    memory.use(5)


def test_seconds_and_peaks_go_to_the_innermost_phase() -> None:
    memory = Steps()
    clock = PhaseClock(memory=memory)
    start = time.perf_counter()
    with clock.listen(), clock.run("whole"):
        memory.use(10)
        for _ in range(2):
            inner(memory)
            with phase("outer"):
                memory.use(20)
                inner(memory)
                memory.use(7)
    passed = time.perf_counter() - start
    assert clock.seconds["inner"] >= 4 * 0.02
    assert clock.seconds["outer"] + clock.seconds["whole"] < 0.02
    assert sum(clock.seconds.values()) == pytest.approx(passed, abs=0.005)
    assert clock.peak_bytes == {"whole": 10, "inner": 50, "outer": 20}


def test_without_a_listener_nothing_is_counted() -> None:
    clock = PhaseClock()
    inner(Steps())
    with clock.listen():
        pass
    inner(Steps())
    assert not clock.seconds


def test_a_phase_that_fails_is_closed() -> None:
    clock = PhaseClock()
    with clock.listen(), clock.run("whole"):
        with pytest.raises(ValueError, match="no"), phase("bad"):
            raise ValueError("no")
        time.sleep(0.01)
    assert clock.seconds["whole"] >= 0.01 > clock.seconds["bad"]


def test_the_process_forgets_its_peak() -> None:
    peak = process_peak()
    if peak is None:
        pytest.skip("this system does not let a process set its peak back")
    with mmap.mmap(-1, 200 * 2**20) as block:  # not malloc's, which may have as much left over
        block.write(bytes(len(block)))
        peak.reset()
        with_block = peak.read()
    peak.reset()
    assert with_block - peak.read() > 150 * 2**20
