"""Draws charts with matplotlib, as SVG to stand in a page and as PNG. matplotlib is imported when something is drawn."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from grpo_zero.report.charts import Chart, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (5.4, 2.7)
WIDE_INCHES = (11.0, 3.2)
PNG_DPI = 160
SMOOTH = 7
"""Steps of the moving average."""
INK, PALE, WORRY = "#30363d", "#e3e6ea", "#d1495b"
STYLE: Any = {
    "font.size": 9.0,
    "font.family": "sans-serif",
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "grpo-zero",
}
"""Text stays text in the SVG, so that it can be read and searched; the salt makes equal charts equal files."""


def draw(chart: Chart) -> tuple[str, bytes]:
    """The chart as an ``<svg>`` element and as the bytes of a PNG file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=WIDE_INCHES if chart.is_wide else SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        _paint(axes, chart)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        figure.savefig(png, format="png", dpi=PNG_DPI, metadata={"Software": None})
    text = svg.getvalue()
    return text[text.index("<svg") :], png.getvalue()


def _paint(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    if chart.is_stacked:
        _stack(axes, chart)
    else:
        for curve in chart.curves:
            _line(axes, curve)
    if chart.unit == "share":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(*_share_limits(chart))
    else:
        axes.set_ylabel(chart.unit)
        if all(min(curve.series.values) >= 0 for curve in chart.curves):
            axes.set_ylim(bottom=0)
    limit = chart.worry_above
    if limit is not None and limit < axes.get_ylim()[1]:
        top = axes.get_ylim()[1]
        axes.axhspan(limit, top, color=WORRY, alpha=0.07, linewidth=0)
        axes.axhline(limit, color=WORRY, alpha=0.4, linewidth=0.8)
        axes.text(
            0.995, limit, "worry above", transform=axes.get_yaxis_transform(), ha="right", va="bottom", color=WORRY
        )
        axes.set_ylim(top=top)
    axes.set_title(chart.title, loc="left", fontsize=10.5, fontweight="bold")
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.tick_params(length=0)
    axes.margins(x=0.01)
    if len(chart.curves) > 1:
        axes.legend(
            frameon=False,
            ncols=len(chart.curves),
            fontsize=8.5,
            handlelength=1.2,
            columnspacing=1.2,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            borderaxespad=0.1,
        )


def _line(axes: Axes, curve: Curve) -> None:
    steps, values = curve.series.steps, curve.series.values
    if curve.low and curve.high:
        axes.fill_between(steps, curve.low.values, curve.high.values, color=curve.colour, alpha=0.15, linewidth=0)
    if not curve.is_noisy:
        axes.plot(steps, values, color=curve.colour, linewidth=1.8, marker="o", markersize=4, label=curve.label)
        return
    smooth = moving_average(np.asarray(values))
    axes.plot(steps, values, color=curve.colour, linewidth=0.8, alpha=0.35)
    axes.plot(steps, smooth, color=curve.colour, linewidth=1.6, label=curve.label)


def _stack(axes: Axes, chart: Chart) -> None:
    """Curves of one set of steps, on top of each other; a curve that lacks a step counts 0 there."""
    steps = sorted({step for curve in chart.curves for step in curve.series.steps})
    rows = [dict(zip(curve.series.steps, curve.series.values, strict=True)) for curve in chart.curves]
    heights = [[row.get(step, 0.0) for step in steps] for row in rows]
    colours = [curve.colour for curve in chart.curves]
    labels = [curve.label for curve in chart.curves]
    axes.stackplot(steps, *heights, labels=labels, colors=colours, alpha=0.75, linewidth=0)


def moving_average(values_T: np.ndarray) -> np.ndarray:
    """Centred, over ``SMOOTH`` steps and fewer at the ends; a short series stays as it is."""
    if len(values_T) < 2 * SMOOTH:
        return values_T
    window = np.ones(SMOOTH)
    return np.convolve(values_T, window, "same") / np.convolve(np.ones(len(values_T)), window, "same")


def _share_limits(chart: Chart) -> tuple[float, float]:
    """From 0 to just above what is drawn, the limit included; never far above 100 %."""
    highest = max(max((curve.high or curve.series).values) for curve in chart.curves)
    highest = max(highest, 1.3 * (chart.worry_above or 0.0))
    return 0.0, min(1.02, math.ceil(highest * 21) / 20 or 0.05)
