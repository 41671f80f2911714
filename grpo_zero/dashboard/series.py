"""What one chart needs of one run: downsampled columns, levels, and what each metric means."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_zero.dashboard.downsample import kept_rows
from grpo_zero.dashboard.metrics_table import MetricsTable
from grpo_zero.dashboard.panels import Panel, Part, recorded
from grpo_zero.observe.catalogue import Metric, find_metric

Numbers = NDArray[np.float64]


def describe(name: str) -> dict[str, Any]:
    """The catalogue's entry for a recorded metric; a metric it does not know has no definition."""
    metric = find_metric(name) or Metric(name, "", "Not in the catalogue.", "")
    return {
        "name": name,
        "unit": metric.unit,
        "definition": metric.definition,
        "healthy": metric.healthy,
        "worry_above": metric.worry_above,
        "worry_below": metric.worry_below,
    }


def panel_lines(
    panel: Panel, table: MetricsTable, max_points: int, first: float = -np.inf, last: float = np.inf, window: int = 1
) -> list[dict[str, Any]]:
    """The lines of a chart.

    Args:
        panel: what to draw.
        table: the run's metrics.
        max_points: rows kept for all lines of the chart that share their rows.
        first, last: steps between which to draw, so that a zoomed chart shows more of less.
        window: rows of training over which each point is the mean; evaluations are means over many answers already.

    Returns:
        For each line ``name``, ``metric``, ``steps``, ``values`` (null where there is none), the newest value as ``last``, and
        for intervals ``low`` and ``high``.
    """
    names = recorded(panel, table.names())
    if panel.style == "stack":
        columns = [
            (part.label, part.metric, trailing_mean(_less(part, table), window))
            for part in panel.parts
            if part.metric in names
        ]
        return _thinned(columns, table, max_points, first, last)
    lines = []
    for is_evaluation in (False, True):  # rows of one kind are thinned together
        own = [name for name in names if name.startswith("eval/") == is_evaluation]
        own_window = 1 if is_evaluation else window
        columns = [(name, name, trailing_mean(table.series(name)[1], own_window)) for name in own]
        if panel.style == "interval":
            columns += [(end, end, table.series(end)[1]) for name in own for end in (f"{name}_low", f"{name}_high")]
        lines += _thinned(columns, table, max_points, first, last)
    if panel.style == "interval":
        ends = {line["name"]: line["values"] for line in lines}
        lines = [line for line in lines if line["name"] in names]
        for line in lines:
            line |= {"low": ends[f"{line['name']}_low"], "high": ends[f"{line['name']}_high"]}
    return lines


def trailing_mean(values: Numbers, window: int) -> Numbers:
    """The mean over each row and those before it, ``window`` in all, of the numbers among them; NaN where there is none."""
    if window <= 1:
        return values
    is_number = ~np.isnan(values)
    sums, counts = np.cumsum(np.where(is_number, values, 0.0)), np.cumsum(is_number)
    sums[window:], counts[window:] = sums[window:] - sums[:-window], counts[window:] - counts[:-window]
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _less(part: Part, table: MetricsTable) -> Numbers:
    """Never below 0, as rounding might have it; a metric that was not recorded takes nothing away."""
    values = table.series(part.metric)[1]
    for name in part.less:
        values = values - np.nan_to_num(table.series(name)[1])
    return np.maximum(values, 0)


def _thinned(
    columns: list[tuple[str, str, Numbers]], table: MetricsTable, max_points: int, first: float, last: float
) -> list[dict[str, Any]]:
    """Columns that share their rows, as lines."""
    if not columns:
        return []
    steps = table.series(columns[0][1])[0]
    # A row may have come in between two readings of the table.
    num_rows = min(len(steps), *(len(values) for _, _, values in columns))
    steps, columns = steps[:num_rows], [(name, metric, values[:num_rows]) for name, metric, values in columns]
    shown = np.flatnonzero((steps >= first) & (steps <= last))
    if not shown.size:
        return []
    kept = shown[kept_rows([values[shown] for _, _, values in columns], max_points)]
    return [
        {
            "name": name,
            "metric": metric,
            "steps": steps[kept].astype(int).tolist(),
            "values": _with_nulls(values[kept]),
            "last": table.last(metric),
        }
        for name, metric, values in columns
        if not np.isnan(values).all()
    ]


def _with_nulls(values: Numbers) -> list[float | None]:
    """Six digits: more cannot be seen, and they would double what is sent."""
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in values]
