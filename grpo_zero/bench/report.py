"""What the bench found: medians by phase with their share of the machine's limits, as a document and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_zero.bench.floors import Group, Peaks, decode_floor, optimizer_floor, prefill_floor, update_floor
from grpo_zero.bench.step import PHASES, Measured
from grpo_zero.config import Config
from grpo_zero.model.spec import ModelSpec

_GIB = 2**30
TOTALS = {
    "sample_s": ("prefill", "decode"),
    "update_s": ("update", "optimizer"),
    "step_s": (*PHASES, "other"),
}


def result_of(
    steps: Sequence[Measured], spec: ModelSpec, config: Config, peaks: Peaks, itemsize: int
) -> dict[str, Any]:
    """The JSON document, less what is known before: ``phases``, ``sample_s``, ``update_s``, ``step_s``, ``peak_gib``."""

    def spread_of(names: Sequence[str]) -> dict[str, float]:
        return spread([sum(step.seconds.get(name, 0.0) for name in names) for step in steps])

    phases: dict[str, dict[str, Any]] = {}
    for name in PHASES:
        facts: dict[str, Any] = {"seconds": spread_of([name])}
        median = facts["seconds"]["median"]
        if name in TOKENS and median:
            facts["tokens_s"] = round(statistics.median(TOKENS[name](step.groups) for step in steps) / median, 1)
        floor = _floor(name, [step.groups for step in steps], spec, config, peaks, itemsize)
        if floor is not None and median:
            facts |= {"floor_s": round(floor, 4), "share_of_floor": round(floor / median, 3)}
        tops = [step.peak_bytes[name] for step in steps if name in step.peak_bytes]
        if tops:
            facts["peak_gib"] = round(max(tops) / _GIB, 2)
        phases[name] = facts
    return {
        "phases": phases,
        **{name: spread_of(parts) for name, parts in TOTALS.items()},
        "sampled_tokens": spread([_sampled(step.groups) for step in steps]),
        "product_gflops": round(peaks.product_flops / 1e9, 1),
        "read_gb_s": round(peaks.read_bytes / 1e9, 2),
    }


def table(result: Mapping[str, Any]) -> str:
    """Phases and totals for people."""
    lines = [f"{'':12}{'seconds':>10}{'min':>10}{'max':>10}{'tokens/s':>10}{'of limit':>10}{'peak GiB':>10}"]
    for name, facts in result["phases"].items():
        share = f"{facts['share_of_floor']:.0%}" if "share_of_floor" in facts else "-"
        rest = (facts.get("tokens_s", "-"), share, facts.get("peak_gib", "-"))
        lines.append(f"{name:12}{_seconds(facts['seconds'])}" + "".join(f"{cell:>10}" for cell in rest))
    lines += [f"{name:12}{_seconds(result[name])}" for name in TOTALS]
    lines += [
        f"decoding by {result['decoding']}",
        f"peak {result['peak_gib']} GiB, planned {result['planned_gib']} GiB",
        f"limits of this machine, measured first: products {result['product_gflops']:,} GFLOP/s, "
        f"reading {result['read_gb_s']} GB/s ({result['dtype']})",
    ]
    return "\n".join(lines)


def comparison(result: Mapping[str, Any], earlier: Mapping[str, Any], name: str) -> str:
    """How many times as long the earlier result took, by phase; what differs between the two besides the code."""
    lines = [f"against {name} (commit {earlier.get('commit', 'unknown')}), earlier / now:"]
    ratios = [f"{total[:-2]} {_median(earlier[total]) / _median(result[total]):.2f}" for total in TOTALS]
    for phase, facts in result["phases"].items():
        if phase in earlier.get("phases", {}) and _median(facts["seconds"]):
            ratios.append(f"{phase} {_median(earlier['phases'][phase]['seconds']) / _median(facts['seconds']):.2f}")
    lines.append("  " + ", ".join(ratios) + f", peak {earlier['peak_gib'] / result['peak_gib']:.2f}")
    differing = [key for key in ("workload", "settings", "dtype", "machine") if earlier.get(key) != result.get(key)]
    if differing:
        lines.append(f"  not the same in both, so this is no comparison of the code alone: {', '.join(differing)}")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median, most."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def _sampled(groups: Sequence[Group]) -> int:
    return sum(sum(group.completion_tokens) for group in groups)


TOKENS: dict[str, Callable[[Sequence[Group]], int]] = {
    "prefill": lambda groups: sum(group.prompt_tokens for group in groups),
    "decode": _sampled,
    "update": _sampled,
}
"""What a phase's tokens a second count: of prompts, else of completions."""


def _floor(
    name: str, steps: Sequence[Sequence[Group]], spec: ModelSpec, config: Config, peaks: Peaks, itemsize: int
) -> float | None:
    """Median over steps, seconds; None for a phase without one."""
    moment_bytes = config.training.moment_bits // 8
    of: dict[str, Callable[[Sequence[Group]], float]] = {
        "prefill": lambda groups: prefill_floor(spec, groups, peaks),
        "decode": lambda groups: decode_floor(spec, groups, peaks, itemsize),
        "update": lambda groups: update_floor(spec, groups, peaks),
        "optimizer": lambda groups: optimizer_floor(spec, peaks, itemsize, moment_bytes),
    }
    return statistics.median(of[name](groups) for groups in steps) if name in of else None


def _median(facts: Mapping[str, float]) -> float:
    return facts["median"]


def _seconds(facts: Mapping[str, float]) -> str:
    return f"{facts['median']:>10.4g}{facts['min']:>10.4g}{facts['max']:>10.4g}"
