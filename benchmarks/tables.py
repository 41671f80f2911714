"""Writes the figures in README.md and docs/ from the JSON files in benchmarks/results. A test holds pages and files together.

python benchmarks/tables.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    for page, sections in SECTIONS.items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), sections), encoding="utf-8")


def filled(text: str, sections: dict[str, Any]) -> str:
    """The page with every section between ``<!-- name -->`` and ``<!-- /name -->`` made anew."""
    for name, make in sections.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text = re.sub(pattern, lambda match, make=make: f"{match[1]}{make()}\n{match[2]}", text, flags=re.DOTALL)
    return text


def quickstart_sentence() -> str:
    """For the README."""
    result = _load("quickstart")
    runs = result["runs"]
    before, after = (_mean(run[when]["success"] for run in runs) for when in ("before", "after"))
    greedy_before, greedy_after = (_mean(run[when]["greedy_success"] for run in runs) for when in ("before", "after"))
    low, high = min(result["seconds"]), max(result["seconds"])
    return (
        f"The first one takes {low / 60:.0f} to {high / 60:.0f} minutes on 2 CPU cores ({_processor(runs[0])}) and raises "
        f"sampled success on held-out problems from {before:.0f} % to\n{after:.0f} %, greedy success from "
        f"{greedy_before:.0f} % to {greedy_after:.0f} % (means of {len(runs)} seeds; [details](docs/quickstart.md))."
    )


def quickstart_table() -> str:
    """For docs/quickstart.md."""
    result = _load("quickstart")
    lines = [
        "| seed | sampled before, % | after, % | greedy before, % | after, % | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for run in result["runs"]:
        before, after = run["before"], run["after"]
        lines.append(
            f"| {run['random_seed']} | {100 * before['success']:.1f} | {100 * after['success']:.1f} "
            f"| {100 * before['greedy_success']:.1f} | {100 * after['greedy_success']:.1f} | {run['seconds']:.0f} |"
        )
    run = result["runs"][0]
    width = 50 * (run["after"]["success_high"] - run["after"]["success_low"])
    lines.append("")
    lines.append(
        "Sampled success: mean over 4 answers each to 512 held-out problems, temperature 1; 95 % intervals of about "
        f"± {width:.1f} points.\nMeasured on {_processor(run)}, {run['machine']['threads']} threads, "
        f"torch {run['machine']['torch']}, float32; `{result['command']}`."
    )
    return "\n".join(lines)


def bench_table() -> str:
    """For docs/benchmarks.md."""
    lines = ["| workload | sample s | update s | step s | peak GiB |", "|---|---|---|---|---|"]
    for name in ("w1", "w2"):
        result = _load(name)
        cells = " | ".join(f"{result[key]['median']:.1f}" for key in ("sample_s", "update_s", "step_s"))
        lines.append(f"| {result['workload']} | {cells} | {result['peak_gib']:.1f} |")
    machine = _load("w1")["machine"]
    lines.append("")
    lines.append(
        f"Medians of {_load('w1')['repeats']} steps after a warm-up step; {_processor(_load('w1'))}, "
        f"{machine['threads']} threads, torch {machine['torch']}, float32."
    )
    return "\n".join(lines)


def smollm2_sentence() -> str:
    """For docs/benchmarks.md."""
    result = _load("smollm2")
    before, after = result["before"], result["after"]
    sampled, greedy = (
        f"{_interval(before, name)} after the warm start, {_interval(after, name)} after GRPO"
        for name in ("success", "greedy_success")
    )
    return (
        f"SmolLM2-135M-Instruct (dequantised Q4_1) on two-number Countdown, {result['steps']} GRPO steps: sampled success\n"
        f"{sampled};\ngreedy {greedy}. The warm start took {result['warm_start_s'] / 60:.0f} minutes, GRPO "
        f"{result['grpo_s'] / 60:.0f} minutes, both with loading, on {_processor(result)}."
    )


def _interval(facts: dict[str, float], name: str) -> str:
    low, high = 100 * facts[f"{name}_low"], 100 * facts[f"{name}_high"]
    return f"{100 * facts[name]:.1f} % ({low:.1f} to {high:.1f})"


def _load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _mean(values: Any) -> float:
    values = list(values)
    return 100 * sum(values) / len(values)


def _processor(facts: dict[str, Any]) -> str:
    return facts["machine"]["processor"]


SECTIONS = {
    "README.md": {"quickstart": quickstart_sentence},
    "docs/quickstart.md": {"quickstart": quickstart_table},
    "docs/benchmarks.md": {"bench": bench_table, "smollm2": smollm2_sentence},
}

if __name__ == "__main__":
    main()
