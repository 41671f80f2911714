"""The charts of the page, as data: which metrics, drawn how. What they mean stands in the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_PART = "/<part>"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a stacked chart: a metric less others that are drawn by themselves."""

    metric: str
    less: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    key: str
    """Its name in addresses."""
    title: str
    metrics: tuple[str, ...]
    """Catalogue names; ``reward/<part>`` stands for all there are."""
    style: Literal["line", "interval", "stack"] = "line"
    """``interval`` shades between ``<metric>_low`` and ``<metric>_high``; ``stack`` draws ``parts``."""
    parts: tuple[Part, ...] = ()
    has_plan: bool = False
    """Whether planned memory is drawn as a level."""


PANELS: tuple[Panel, ...] = (
    Panel("success", "Held-out success", ("eval/success", "eval/greedy_success"), "interval"),
    Panel("reward", "Reward by part", ("reward", "reward/<part>", "penalty/<part>")),
    Panel(
        "zero_variance",
        "Groups that teach nothing",
        (
            "zero_variance_share",
            "zero_variance_all_right_share",
            "zero_variance_all_wrong_share",
            "zero_variance_expected",
        ),
    ),
    Panel("length", "Length of right and wrong answers", ("length_right", "length_wrong", "length")),
    Panel("truncated", "Answers cut by the length limit", ("truncated_share", "eval/truncated_share")),
    Panel("entropy", "Entropy", ("entropy",)),
    Panel("grad_norm", "Gradient norm", ("grad_norm",)),
    Panel("kl", "KL divergence", ("kl_old", "kl_reference")),
    Panel("clip", "Clipped tokens", ("clip_fraction_low", "clip_fraction_high")),
    Panel("gap", "Sampler against trainer", ("logprob_gap",)),
    Panel(
        "seconds",
        "Where the seconds of a step go",
        ("step_s", "sample_s", "prefill_s", "verify_s", "reference_s", "update_s", "optimizer_s"),
        "stack",
        (
            Part("prefill_s", label="prefill"),
            Part("sample_s", ("prefill_s",), "sampling"),
            Part("verify_s", label="verifying"),
            Part("reference_s", label="reference"),
            Part("update_s", ("optimizer_s",), "forward, backward"),
            Part("optimizer_s", label="optimizer"),
            Part("step_s", ("sample_s", "verify_s", "reference_s", "update_s"), "the rest"),
        ),
    ),
    Panel("speed", "Tokens per second", ("tokens_per_s_sample", "tokens_per_s_update")),
    Panel("memory", "Peak memory", ("peak_gib", "peak_host_gib"), has_plan=True),
    Panel("loss", "Loss", ("loss",)),
    Panel("learning_rate", "Learning rate", ("learning_rate",)),
    Panel("reward_std", "Spread of rewards", ("reward_std",)),
    Panel("eval_reward", "Held-out reward by part", ("eval/reward", "eval/reward/<part>")),
    Panel("trouble", "Updates skipped, memory run out", ("skipped_updates", "out_of_memory")),
    Panel("failed", "Verifications that failed", ("failed_share",)),
    Panel("rounds", "Rounds of dynamic sampling", ("sampling_rounds",)),
    Panel("kept", "Groups that dynamic sampling found", ("kept_share",)),
    Panel("notes", "What the task reports besides", ("note/<part>", "eval/note/<part>")),
)


def recorded(panel: Panel, names: Sequence[str]) -> list[str]:
    """The panel's metrics among the recorded ones, parts spelled out."""
    found: list[str] = []
    for metric in panel.metrics:
        if metric.endswith(_PART):
            prefix = metric.removesuffix(_PART) + "/"
            found += [name for name in names if name.startswith(prefix)]
        elif metric in names:
            found.append(metric)
    return found
