"""What a run comes to: ``summary.json``, and the curve on the console."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_zero.observe.curve import success_chart
from grpo_zero.observe.files import read_rows, write_summary

SUMMARY_FILE = "summary.json"


def summarise(folder: Path, facts: Mapping[str, Any], seconds: float) -> str:
    """Write ``summary.json`` from ``metrics.jsonl`` and return the closing lines for the console.

    Args:
        folder: the run folder.
        facts: model, seed, steps, memory, machine: what the metrics do not tell.
        seconds: of this session; those of earlier sessions of a resumed run are added.
    """
    path = folder / SUMMARY_FILE
    if path.is_file():
        seconds += json.loads(path.read_text())["seconds"]
    rows = read_rows(folder / "metrics.jsonl")
    evals = [row for row in rows if row["kind"] == "eval"]
    trained = [row for row in rows if row["kind"] == "train"]
    summary = {
        **facts,
        "seconds": round(seconds, 1),
        "step_s_median": statistics.median([row["step_s"] for row in trained]) if trained else None,
        "skipped_updates": sum(row.get("skipped_updates", 0) for row in trained),
        "sampled_tokens_per_s": _ratio(trained, "num_tokens", "sample_s"),
        "updated_tokens_per_s": _ratio(trained, "forwarded_tokens", "update_s"),
        "before": _eval_facts(evals[0]) if evals else None,
        "after": _eval_facts(evals[-1]) if evals else None,
    }
    write_summary(path, summary)
    lines = _comparison(evals) if len(evals) > 1 else []
    lines.append(
        f"{facts['steps']} steps, {seconds:.0f} s; summary.json, metrics.jsonl and samples.jsonl are in {folder}"
    )
    return "\n".join(lines)


def _comparison(evals: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [success_chart([row["step"] for row in evals], [row["eval/success"] for row in evals])]
    for key, label in (("eval/success", "sampled"), ("eval/greedy_success", "greedy")):
        if key in evals[0] and key in evals[-1]:  # a resumed run may have changed what is measured
            before, after, low, high = (
                100 * value
                for value in (evals[0][key], evals[-1][key], evals[-1][f"{key}_low"], evals[-1][f"{key}_high"])
            )
            lines.append(f"{label} success {before:.1f} % -> {after:.1f} % (95 %: {low:.1f} to {high:.1f})")
    return lines


def _eval_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("eval/"): value for key, value in row.items() if key != "kind"}


def _ratio(rows: Sequence[Mapping[str, Any]], above: str, below: str) -> float | None:
    return sum(row[above] for row in rows) / sum(row[below] for row in rows) if rows else None
