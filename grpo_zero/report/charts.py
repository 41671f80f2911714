"""Which curves a report shows, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grpo_zero.doctor.evidence import Evidence, Series
from grpo_zero.doctor.lengths import most_cut
from grpo_zero.observe.catalogue import Metric, find_metric

BLUE, GREEN, ORANGE, GREY, PURPLE = "#2f6db3", "#3a8f5c", "#c9772b", "#8a8f98", "#7a5ea8"
PART_COLOURS = (GREEN, ORANGE, PURPLE, GREY)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line."""

    label: str
    series: Series
    colour: str
    low: Series | None = None
    """Lower end of its interval, at the same steps; with ``high`` it is drawn as a band."""
    high: Series | None = None
    is_noisy: bool = True
    """Drawn thin, with its moving average over it; else with a mark at each point."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture."""

    name: str
    """Also of its PNG file."""
    title: str
    unit: str
    """Label of the vertical axis; ``share`` is shown in percent."""
    curves: tuple[Curve, ...]
    metrics: tuple[Metric, ...]
    """What the caption explains."""
    worry_above: float | None = None
    """Values above are shaded."""
    is_stacked: bool = False
    is_wide: bool = False


def charts_of(evidence: Evidence) -> list[Chart]:
    """The charts that this run has numbers for, most important first."""
    part_names = [part.name for part in evidence.parts if part]
    charts = [
        Chart(
            "success",
            "Success",
            "share",
            (
                *_held_out(evidence, "eval/success", "held-out, sampled", BLUE),
                *_held_out(evidence, "eval/greedy_success", "held-out, greedy", GREEN),
                *_curves(evidence, {"success": ("training problems", GREY)}),
            ),
            _explained("eval/success", "success"),
            is_wide=True,
        ),
        Chart(
            "reward",
            "Reward",
            "reward",
            _curves(
                evidence,
                {"reward": ("reward", BLUE)}
                | {
                    name: (name.removeprefix("reward/"), PART_COLOURS[index % len(PART_COLOURS)])
                    for index, name in enumerate(part_names)
                },
            ),
            _explained("reward"),
        ),
        _chart(
            evidence,
            "groups",
            "Groups all alike",
            "share",
            {
                "zero_variance_share": ("any", BLUE),
                "zero_variance_all_right_share": ("all right", GREEN),
                "zero_variance_all_wrong_share": ("all wrong", ORANGE),
            },
        ),
        _chart(
            evidence,
            "length",
            "Length of answers",
            "tokens",
            {"length": ("all", BLUE), "length_right": ("right", GREEN), "length_wrong": ("wrong", ORANGE)},
        ),
        replace(
            _chart(evidence, "truncated", "Answers cut by the limit", "share", {"truncated_share": ("cut", BLUE)}),
            worry_above=most_cut(evidence),
        ),
        _chart(evidence, "entropy", "Entropy", "nats per token", {"entropy": ("entropy", BLUE)}),
        _chart(evidence, "gradient", "Gradient norm", "norm", {"grad_norm": ("before clipping", BLUE)}),
        *_off_policy(evidence),
        Chart(
            "time",
            "Time of a step",
            "seconds",
            _curves(
                evidence,
                {
                    "sample_s": ("sampling", BLUE),
                    "verify_s": ("verifying", ORANGE),
                    "reference_s": ("reference", PURPLE),
                    "update_s": ("update", GREEN),
                },
            ),
            _explained("sample_s", "update_s"),
            is_stacked=True,
        ),
        _chart(evidence, "memory", "Peak of memory", "GiB", {"peak_gib": ("so far", BLUE)}),
    ]
    return [chart for chart in charts if any(len(curve.series) > 1 for curve in chart.curves)]


def _chart(evidence: Evidence, name: str, title: str, unit: str, lines: dict[str, tuple[str, str]]) -> Chart:
    first = next(iter(lines))
    metric = find_metric(first)
    worry = metric.worry_above if metric else None
    return Chart(name, title, unit, _curves(evidence, lines), _explained(first), worry)


def _off_policy(evidence: Evidence) -> list[Chart]:
    """Only where there are several updates on a rollout; else both are 0."""
    if evidence.config.training.updates_per_rollout == 1:
        return []
    return [
        _chart(evidence, "kl", "KL from the sampling policy", "nats per token", {"kl_old": ("KL", BLUE)}),
        _chart(
            evidence,
            "clipped",
            "Clipped tokens",
            "share",
            {"clip_fraction_high": ("ratio too high", BLUE), "clip_fraction_low": ("ratio too low", ORANGE)},
        ),
    ]


def _curves(evidence: Evidence, lines: dict[str, tuple[str, str]]) -> tuple[Curve, ...]:
    curves = (Curve(label, evidence.series(name), colour) for name, (label, colour) in lines.items())
    return tuple(curve for curve in curves if curve.series)


def _held_out(evidence: Evidence, name: str, label: str, colour: str) -> tuple[Curve, ...]:
    series, low, high = (evidence.eval_series(f"{name}{end}") for end in ("", "_low", "_high"))
    if not series:
        return ()
    has_band = low.steps == high.steps == series.steps
    curve = Curve(label, series, colour, is_noisy=False)
    return (replace(curve, low=low, high=high) if has_band else curve,)


def _explained(*names: str) -> tuple[Metric, ...]:
    return tuple(metric for name in names if (metric := find_metric(name)))
