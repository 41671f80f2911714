"""All rules over one run."""

from __future__ import annotations

from grpo_zero.doctor.evidence import Evidence
from grpo_zero.doctor.finding import SEVERITIES, Finding, Rule
from grpo_zero.doctor.groups import dead_groups, too_easy, too_hard, wasted_rollouts
from grpo_zero.doctor.lengths import length_explosion, truncation
from grpo_zero.doctor.machine import memory_climbing, out_of_memory, over_plan, slow_verifier
from grpo_zero.doctor.reward import (
    failed_verifiers,
    form_without_task,
    held_out_fell,
    held_out_is_flat,
    reward_collapse,
    reward_without_success,
)
from grpo_zero.doctor.updates import (
    entropy_collapse,
    gradient_spikes,
    learning_rate_too_high,
    learning_rate_too_low,
    loss_is_zero,
    non_finite,
    sampler_and_trainer_disagree,
)

RULES: tuple[Rule, ...] = (
    non_finite,
    failed_verifiers,
    sampler_and_trainer_disagree,
    too_hard,
    too_easy,
    dead_groups,
    wasted_rollouts,
    form_without_task,
    reward_without_success,
    held_out_is_flat,
    held_out_fell,
    reward_collapse,
    truncation,
    length_explosion,
    entropy_collapse,
    learning_rate_too_high,
    learning_rate_too_low,
    gradient_spikes,
    memory_climbing,
    over_plan,
    out_of_memory,
    slow_verifier,
    loss_is_zero,
)
"""Causes before what follows from them."""
ENOUGH_STEPS = 10
"""Rules on trends are silent before."""


def diagnose(evidence: Evidence) -> list[Finding]:
    """What the rules find, worst first and then in the order of ``RULES``; nothing in a healthy run."""
    found = [finding for rule in RULES if (finding := rule(evidence))]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def closing_line(evidence: Evidence, num_findings: int) -> str:
    """What the findings come to, in a sentence."""
    if num_findings:
        return f"{num_findings} finding{'s' if num_findings > 1 else ''}."
    if evidence.num_steps < ENOUGH_STEPS:
        return f"Nothing found, but {evidence.num_steps} steps are few: rules on trends need {ENOUGH_STEPS}."
    return f"Healthy: none of {len(RULES)} rules found anything in {evidence.num_steps} steps."
