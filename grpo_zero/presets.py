"""The family of algorithms: which parts there are, and which parts each named preset puts together.

``algorithm: dapo`` takes a preset whole; ``algorithm: {preset: dapo, clip_high: 0.25}`` changes one part of it.
``docs/algorithms.md`` says where each part is computed, judged and described.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_zero.settings import option

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "grpo_zero": {},
    "grpo": {"average": "sequence"},
    "dapo": {"clip_high": 0.28, "overlong_buffer_share": 0.2, "dynamic_sampling_rounds": 3},
    "dr_grpo": {"scale": "none", "average": "constant"},
    "rloo": {
        "baseline": "leave_one_out",
        "scale": "none",
        "objective": "policy_gradient",
        "average": "constant",
    },
    "reinforce_pp_baseline": {"scale": "whiten"},
    "batch_std": {"scale": "batch_std"},
    "gspo": {"ratio_level": "sequence", "clip_low": 3e-4, "clip_high": 4e-4, "average": "sequence"},
    "cispo": {"objective": "cispo", "clip_high": 4.0},
}
"""Each preset as what it changes in the defaults of ``AlgorithmConfig``."""


@dataclass(frozen=True)
class AlgorithmConfig:
    """How advantages are formed, and how tokens are clipped, weighted and averaged."""

    preset: str = option(
        "grpo_zero",
        "Named combination of the parts below; keys given beside it change single parts.",
        choices=(*PRESETS,),
    )
    baseline: str = option(
        "mean",
        "What a reward is compared with: the mean of its group, or of the others in it (leave_one_out).",
        choices=("mean", "leave_one_out"),
    )
    scale: str = option(
        "group_std",
        "What the difference is divided by: std of the group's rewards, of all rewards of the step (batch_std), of all "
        "differences of the step (whiten), or nothing (none).",
        choices=("group_std", "batch_std", "whiten", "none"),
    )
    std: str = option(
        "population",
        "Standard deviation with divisor n (population) or n - 1 (sample, as TRL and verl have it).",
        choices=("population", "sample"),
    )
    objective: str = option(
        "clipped",
        "What a token contributes: the clipped ratio, the log-prob under a capped weight (cispo), or without a ratio "
        "(policy_gradient).",
        choices=("clipped", "cispo", "policy_gradient"),
    )
    ratio_level: str = option(
        "token", "Importance ratio of each token, or of the whole completion (sequence).", choices=("token", "sequence")
    )
    old_logprobs: str = option(
        "auto",
        "Old log-probs of ratios after a rollout's first update: as sampled, or of one more training forward (trainer); auto is "
        "trainer for bfloat16 weights, whose rounding in the sampler is larger than a narrow clip range.",
        choices=("auto", "sampler", "trainer"),
    )
    clip_low: float = option(
        0.2, "Ratios below 1 minus this are clipped; no lower bound in cispo.", minimum=0, maximum=1
    )
    clip_high: float = option(0.2, "Ratios above 1 plus this are clipped.", minimum=0)
    dual_clip: float | None = option(
        None, "With a negative advantage the objective is at least this times the advantage; null is no bound.", above=1
    )
    average: str = option(
        "token",
        "Every completion weighs the same (sequence), every token of the update does (token), or every token does by a "
        "fixed divisor, completions times max_gen_len (constant).",
        choices=("sequence", "token", "constant"),
    )
    kl_weight: float = option(0.0, "Weight of the KL to the starting policy; 0 loads no second model.", minimum=0)
    kl_estimator: str = option(
        "k3", "Estimator of that KL; k1 teaches nothing in the loss.", choices=("k1", "k2", "k3")
    )
    kl_in: str = option(
        "loss",
        "Where the KL goes: in the loss per token, or summed over a completion off its reward.",
        choices=("loss", "reward"),
    )
    overlong_buffer_share: float = option(
        0.0,
        "Last share of max_gen_len in which the reward falls in a line by up to 1, for answers that are in the loss; 0 is no "
        "punishment.",
        minimum=0,
        maximum=1,
    )
    dynamic_sampling_rounds: int = option(
        0,
        "Train only on groups with right and wrong answers, drawing questions anew at most so many times in all; 0 trains "
        "on all groups.",
        minimum=0,
    )

    @property
    def has_kl_loss(self) -> bool:
        """Whether a token teaches something though its advantage is 0."""
        return self.kl_weight > 0 and self.kl_in == "loss"


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of an ``algorithm`` section over those of its preset; an unknown preset is left for the type check."""
    return {**PRESETS.get(values.get("preset", "grpo_zero"), {}), **values}
