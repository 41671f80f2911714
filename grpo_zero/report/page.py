"""The page: everything that comes from a run is escaped, nothing is loaded from elsewhere, no script."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from grpo_zero.changes import changes
from grpo_zero.config import Config
from grpo_zero.doctor.diagnose import closing_line
from grpo_zero.doctor.evidence import Evidence, number, percent
from grpo_zero.doctor.finding import Finding
from grpo_zero.observe.console import duration
from grpo_zero.observe.terminal import harmless
from grpo_zero.report.answers import Example, shortened
from grpo_zero.report.charts import Chart
from grpo_zero.settings import show

KIND_WORDS = {"right": "Right", "wrong": "Wrong", "cut": "Cut by the length limit"}


def page(
    name: str,
    evidence: Evidence,
    findings: Sequence[Finding],
    drawn: Sequence[tuple[Chart, str]],
    examples: Sequence[Example],
) -> str:
    """The whole HTML text.

    Args:
        name: of the run.
        drawn: each chart with its ``<svg>`` element.
    """
    style = (resources.files("grpo_zero.report") / "style.css").read_text(encoding="utf-8")
    sections = [
        _header(name, evidence),
        _section("Findings", _findings(findings, evidence)),
        _section("Curves", f'<div class="charts">{"".join(_chart(chart, svg) for chart, svg in drawn)}</div>'),
        _section("Answers", "".join(map(_example, examples)) or "<p>None recorded.</p>"),
        _section("Settings that differ from the defaults", _settings(evidence.config)),
        _section("Made with", _machine(evidence)),
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_text(name)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return html.escape(harmless(str(value)))


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{_text(title)}</h2>\n{body}\n</section>\n"


def _header(name: str, evidence: Evidence) -> str:
    config, last = evidence.config, evidence.train[-1]
    tiles = [
        _tile(label, key, evidence) for label, key in (("Sampled", "eval/success"), ("Greedy", "eval/greedy_success"))
    ]
    facts = [
        ("Steps", f"{last['step']}"),
        ("Time", duration(evidence.summary["seconds"]) if "seconds" in evidence.summary else "still running"),
        ("Model", config.model.pretrained_model_path),
        ("Task", config.data.task),
        ("Algorithm", config.algorithm.preset),
    ]
    items = "".join(f"<div><dt>{_text(label)}</dt><dd>{_text(value)}</dd></div>" for label, value in facts)
    return (
        f'<header>\n<p class="kicker">GRPO-Zero run</p>\n<h1>{_text(name)}</h1>\n'
        f'<dl class="facts">{items}</dl>\n<div class="tiles">{"".join(tiles)}</div>\n</header>\n'
    )


def _tile(label: str, key: str, evidence: Evidence) -> str:
    rows = [row for row in evidence.evals if row.get(key) is not None]
    if not rows:
        return ""
    before, after = rows[0], rows[-1]
    arrow = (
        f"{_share(before[key])} &rarr; <strong>{_share(after[key])}</strong>" if len(rows) > 1 else _share(after[key])
    )
    intervals = "; ".join(
        f"step {row['step']}: {_share(row[f'{key}_low'])} to {_share(row[f'{key}_high'])}"
        for row in (before, after)[-len(rows) :]
        if row.get(f"{key}_low") is not None and row.get(f"{key}_high") is not None
    )
    note = f"95 % intervals: {intervals}" if intervals else ""
    return f'<div class="tile"><p>{label} success on held-out problems</p><p class="big">{arrow}</p><p>{_text(note)}</p></div>'


def _findings(findings: Sequence[Finding], evidence: Evidence) -> str:
    if not findings:
        return f'<p class="healthy">{_text(closing_line(evidence, 0))}</p>'
    return "".join(
        f'<article class="finding {finding.severity}">\n<h3><span>{finding.severity}</span> {_text(finding.title)}</h3>\n'
        f"<p>{_text(finding.diagnosis)}</p>\n<h4>Seen</h4>{_list(finding.evidence)}<h4>To try</h4>{_list(finding.advice)}"
        f"<p>More in {_text(finding.link)}.</p>\n</article>\n"
        for finding in findings
    )


def _list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>"


def _chart(chart: Chart, svg: str) -> str:
    captions = "".join(
        f"<p>{_text(metric.definition)} <em>{_text(metric.healthy)}</em></p>" for metric in chart.metrics
    )
    wide = ' class="wide"' if chart.is_wide else ""
    return f"<figure{wide}>\n{svg}\n<figcaption>{captions}</figcaption>\n</figure>\n"


def _example(example: Example) -> str:
    row = example.row
    reward = "no reward" if row.get("reward") is None else f"reward {number(row['reward'])}"
    return (
        f'<article class="example {example.kind}">\n<h3>{KIND_WORDS[example.kind]} '
        f"<small>{_text(reward)} &middot; {_text(row['reason'])} &middot; step {row['step']}, {_text(row['kind'])}</small></h3>\n"
        f"<pre>{_text(shortened(row['prompt']))}<b>{_text(shortened(row['response']))}</b></pre>\n</article>\n"
    )


def _settings(config: Config) -> str:
    rows = [
        (change.key, show(change.after), show(change.before))
        for change in changes(Config(), config)
        if change.key not in ("training.log_dir", "training.run_name")
    ]
    return _table(("setting", "here", "default"), rows) if rows else "<p>None.</p>"


def _machine(evidence: Evidence) -> str:
    summary: Mapping[str, Any] = evidence.summary
    facts = {**summary.get("code", {}), **summary.get("machine", {})}
    for key, unit in (("peak_gib", "GiB"), ("peak_host_gib", "GiB"), ("step_s_median", "s")):
        if summary.get(key) is not None:
            facts[key] = f"{summary[key]:.2f} {unit}"
    if not facts:
        return "<p>Written down at the end of the run.</p>"
    return _table(("", ""), [(key, str(value)) for key, value in facts.items()])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head) if any(head) else ""
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table>\n{f'<tr>{cells}</tr>' if cells else ''}\n{body}</table>"


def _share(value: float) -> str:
    return percent(value)
