"""Curves as text: success over steps for the end of a run, and one line of bars for the live view."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as one line of bars from the lowest to the highest, at most ``width`` of them: means of neighbours where there
    are more values."""
    if not len(values):
        return ""
    columns = np.array_split(np.asarray(values, dtype=np.float64), min(width, len(values)))
    means = np.array([column.mean() for column in columns])
    low, high = means.min(), means.max()
    if high == low:
        return BARS[len(BARS) // 2] * len(means)
    heights = np.rint((means - low) / (high - low) * (len(BARS) - 1)).astype(int)
    return "".join(BARS[height] for height in heights)


def success_chart(steps: Sequence[int], success: Sequence[float], *, width: int = 60, height: int = 8) -> str:
    """A chart of plain characters, ``*`` a measured point and ``.`` the line between two.

    Args:
        steps: step of each evaluation, rising.
        success: share of right answers at each, 0 to 1.
        width: columns of the plot, without the axis.
        height: its lines, at least 2.

    Returns:
        ``height`` lines, the axis and its labels; with fewer than two points, nothing to draw, "".
    """
    if len(steps) < 2:
        return ""
    low, high = min(success), max(success)
    if high == low:
        # A flat line goes through the middle.
        low, high = low - 0.01, high + 0.01
    columns = np.linspace(0, width - 1, width)
    at = (np.asarray(steps) - steps[0]) / (steps[-1] - steps[0]) * (width - 1)
    grid = [[" "] * width for _ in range(height)]

    def row_of(value: float) -> int:
        return round((high - value) / (high - low) * (height - 1))

    for column, value in enumerate(np.interp(columns, at, success)):
        grid[row_of(float(value))][column] = "."
    for column, value in zip(at, success, strict=True):
        grid[row_of(value)][round(float(column))] = "*"

    labels = {0: high, height - 1: low}
    lines = []
    for row, cells in enumerate(grid):
        value = labels.get(row)
        label = f"{100 * value:5.1f} %" if value is not None else " " * 7
        lines.append(f"{label} |{''.join(cells).rstrip()}")
    lines.append(" " * 8 + "+" + "-" * width)
    first, last = f"step {steps[0]}", f"{steps[-1]}"
    lines.append(" " * 9 + first + last.rjust(width - len(first)))
    return "\n".join(lines)
