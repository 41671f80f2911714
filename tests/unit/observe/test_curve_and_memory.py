"""The text chart and the peak memory."""

from __future__ import annotations

import pytest

from grpo_zero.observe.curve import success_chart
from grpo_zero.observe.memory import peak_gib


def test_chart_of_a_rise() -> None:
    chart = success_chart([0, 10, 20], [0.10, 0.10, 0.30], width=21, height=3)
    assert chart.splitlines() == [
        " 30.0 % |                  ..*",
        "        |             .....",
        " 10.0 % |*.........*..",
        "        +---------------------",
        "         step 0             20",
    ]


def test_flat_chart_and_uneven_steps() -> None:
    lines = success_chart([5, 6, 105], [0.5, 0.5, 0.5], width=50, height=5).splitlines()
    assert [line.count("*") for line in lines[:5]] == [0, 0, 2, 0, 0]
    assert lines[0].startswith(" 51.0 % |")


@pytest.mark.parametrize("steps", [[], [3]])
def test_nothing_to_draw(steps: list[int]) -> None:
    assert success_chart(steps, [0.5] * len(steps)) == ""


def test_peak_memory_sees_an_allocation() -> None:
    before = peak_gib()
    block = bytearray(256 << 20)
    block[::4096] = b"x" * len(block[::4096])
    after = peak_gib()
    assert 0.001 < before < 64
    # Earlier tests may have peaked above this one's start; then the peak need not move.
    assert after >= before
    assert after >= 0.25
