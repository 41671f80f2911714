"""Writes the report of a run: one HTML file, and its plots as PNG files beside it."""

from __future__ import annotations

from pathlib import Path

from grpo_zero.doctor.diagnose import diagnose
from grpo_zero.doctor.evidence import read_run
from grpo_zero.errors import UserError
from grpo_zero.report.answers import choose
from grpo_zero.report.charts import charts_of
from grpo_zero.report.page import page
from grpo_zero.report.plots import draw

REPORT_FILE = "report.html"


def write_report(folder: Path, output: Path | None = None) -> Path:
    """Write the report of a finished or running run; an earlier one is replaced.

    Args:
        folder: the run folder.
        output: the HTML file; None is ``report.html`` in the run folder. The plots go to ``report_plots`` beside it.

    Returns:
        The HTML file.

    Raises:
        UserError: no GRPO run, or no place to write to.
    """
    output = output or folder / REPORT_FILE
    if not output.parent.is_dir():
        raise UserError(f"--output is {output}, but there is no folder {output.parent}: make it first.")
    if output.is_dir():
        raise UserError(f"--output is {output}, which is a folder: give a file in it, as {output / REPORT_FILE}.")
    evidence = read_run(folder)
    plots = output.with_name(f"{output.stem}_plots")
    plots.mkdir(exist_ok=True)
    drawn = []
    for chart in charts_of(evidence):
        svg, png = draw(chart)
        (plots / f"{chart.name}.png").write_bytes(png)
        drawn.append((chart, svg))
    text = page(folder.resolve().name, evidence, diagnose(evidence), drawn, choose(evidence.samples))
    output.write_text(text, encoding="utf-8")
    return output


def report_line(folder: Path) -> str:
    """The closing line of a run: where its report is, or why there is none. Raises nothing that a run could be lost by."""
    try:
        return f"report: {write_report(folder)}"
    except Exception as error:  # whatever a drawing library or a full disk may raise: the run is finished and saved
        return f"note: the report could not be written ({type(error).__name__}: {error}); try grpo-zero report {folder}"
