"""``grpo-zero doctor``: what is going wrong in a run, and what to try."""

from __future__ import annotations

import textwrap
from pathlib import Path

from grpo_zero.doctor.diagnose import closing_line, diagnose
from grpo_zero.doctor.evidence import Evidence, percent, read_run
from grpo_zero.doctor.finding import Finding
from grpo_zero.observe.terminal import show

WIDTH = 110


def show_findings(folder: Path) -> None:
    """Print the findings of a finished or running run.

    Raises:
        UserError: the folder holds no GRPO run.
    """
    evidence = read_run(folder)
    show(f"{folder}: {_so_far(evidence)}")
    found = diagnose(evidence)
    for finding in found:
        show("\n" + "\n".join(_lines(finding)))
    show(("\n" if found else "") + closing_line(evidence, len(found)))


def _so_far(evidence: Evidence) -> str:
    text = f"step {evidence.train[-1]['step']}"
    success = evidence.eval_series("eval/success")
    if len(success) > 1:
        text += f", held-out success {percent(success.values[0])} -> {percent(success.values[-1])}"
    return text


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.severity}: {finding.title}", *_wrapped("", finding.diagnosis)]
    for label, texts in (("seen", finding.evidence), ("try", finding.advice), ("more", (finding.link,))):
        for index, text in enumerate(texts):
            lines += _wrapped(label if not index else "", text)
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    first = f"  {label:<6}" if label else " " * 8
    first = "  " if text.endswith(".") and not label else first
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False)
