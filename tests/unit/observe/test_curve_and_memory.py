"""The text chart and the peak memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_zero.observe import memory
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


def test_a_container_has_what_its_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached files are given up when memory is asked for, so they count as free."""
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = memory.available_bytes()
    for name, text in {"max": "1000", "current": "700", "stat": "anon 500\ninactive_file 100\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.available_bytes() == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert machine is None or memory.available_bytes() > 400
