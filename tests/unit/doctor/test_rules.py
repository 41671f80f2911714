"""Each rule: a run that triggers it, made from a healthy one by changing what is wrong; and the healthy one triggers none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.healthy_run import EVALS, TRAIN

from grpo_zero.config import SECTIONS, load_config
from grpo_zero.doctor.diagnose import RULES, closing_line, diagnose
from grpo_zero.doctor.evidence import Evidence
from grpo_zero.doctor.finding import PAGE, anchor
from grpo_zero.settings import field_names

ROOT = Path(__file__).parents[3]
STEPS = 30
Changes = dict[str, Callable[[float], float | None]]
"""By metric, its value as a function of the time from 0 to 1 of the run."""


def run(
    changes: Changes | None = None, *settings: str, evals: dict[str, list[float]] | None = None, **more: Any
) -> Evidence:
    """The healthy run with some of its metrics replaced."""
    rows = [{"step": step + 1, "kind": "train", **{name: TRAIN[name][step] for name in TRAIN}} for step in range(STEPS)]
    for name, value_at in (changes or {}).items():
        for step, row in enumerate(rows):
            row[name] = value_at(step / (STEPS - 1))
    eval_rows = [dict(row, kind="eval") for row in EVALS]
    for name, values in (evals or {}).items():
        for row, value in zip(eval_rows, values, strict=True):
            row[name] = value
    return Evidence(load_config("quickstart", settings), rows, eval_rows, **more)


def flat(value: float) -> Callable[[float], float]:
    return lambda time: value


def line(start: float, stop: float) -> Callable[[float], float]:
    return lambda time: start + (stop - start) * time


DEAD = {"zero_variance_all_right_share": flat(0.0), "zero_variance_all_wrong_share": flat(0.0)}
STILL = {
    "reward": flat(0.5),
    "success": flat(0.4),
    "entropy": flat(0.25),
    "length": flat(50.0),
    "reward/answer": flat(0.4),
    "reward/format": flat(0.1),
}
ILL: dict[str, tuple[str, Evidence]] = {
    "Too hard": ("problem", run({"zero_variance_all_wrong_share": flat(0.95), "success": flat(0.0)})),
    "Too easy": ("warning", run({"zero_variance_all_right_share": line(0.1, 0.9), "success": line(0.6, 0.99)})),
    "Groups without a difference": ("warning", run(DEAD | {"zero_variance_share": flat(0.6)})),
    "Wasted rollouts": ("note", run(DEAD | {"zero_variance_share": flat(0.4)})),
    "Form without the task": (
        "problem",
        run(
            {
                "reward": line(0.02, 0.1),
                "reward/format": line(0.02, 0.1),
                "reward/answer": flat(0.0),
                "success": flat(0.0),
            }
        ),
    ),
    "Reward without success": ("problem", run({"success": flat(0.3), "reward/format": line(0.1, 0.4)})),
    "Held-out success stays behind": ("warning", run(evals={"eval/success": [0.302, 0.305]})),
    "Held-out success fell": ("problem", run(evals={"eval/success": [0.302, 0.2], "eval/success_high": [0.326, 0.22]})),
    "Reward collapse": ("problem", run({"reward": lambda time: 0.7 if time < 0.6 else 0.1})),
    "Truncation": ("problem", run({"truncated_share": line(0.0, 0.9)})),
    "Length explosion": ("warning", run({"length": line(50, 140), "success": flat(0.3), "reward": flat(0.4)})),
    "Entropy collapse": ("problem", run({"entropy": lambda time: 0.3 * 0.5 ** (12 * time)})),
    "Learning rate too high": ("warning", run({"kl_old": line(0.0, 0.2)}, "training.updates_per_rollout=4")),
    "Learning rate too low": ("warning", run(STILL, evals={"eval/success": [0.4, 0.4]})),
    "Gradient spikes": ("warning", run({"grad_norm": lambda time: 9.0 if time == 1 else 0.1})),
    "Non-finite numbers": ("problem", run({"loss": lambda time: None if time == 1 else 0.1})),
    "Sampler and trainer disagree": ("problem", run({"logprob_gap": flat(0.01)})),
    "Failed verifiers": ("warning", run({"failed_share": flat(0.02)})),
    "Memory climbing": ("warning", run({"peak_gib": line(1.0, 3.0)})),
    "Out of memory": ("note", run({"out_of_memory": lambda time: 2.0 if time == 0 else None})),
    "More memory than planned": ("warning", run(plan={"planned_gib": 1.0})),
    "Slow verifier": ("warning", run({"verify_s": flat(9.0), "step_s": flat(12.0)})),
    "A loss of 0 is normal": ("note", run({"loss": flat(1e-8)})),
}
"""By title, its severity and a run that has this illness and, beside what follows from it, no other."""
FOLLOWS = {
    "Too hard": {"Form without the task"},
    "Groups without a difference": {"Wasted rollouts"},
}


def titles(evidence: Evidence) -> list[str]:
    return [finding.title for finding in diagnose(evidence)]


def test_a_healthy_run_triggers_nothing() -> None:
    assert titles(run()) == []
    assert closing_line(run(), 0) == f"Healthy: none of {len(RULES)} rules found anything in 30 steps."


def test_a_healthy_run_is_healthy_from_its_first_step_on() -> None:
    whole = run()
    for num_steps in range(1, STEPS):
        early = Evidence(whole.config, whole.train[:num_steps], whole.evals[:1])
        assert titles(early) == [], num_steps


@pytest.mark.parametrize("title", ILL)
def test_an_ill_run_is_diagnosed(title: str) -> None:
    severity, evidence = ILL[title]
    found = {finding.title: finding for finding in diagnose(evidence)}
    assert title in found
    assert found.keys() - {title} <= FOLLOWS.get(title, set())
    assert found[title].severity == severity
    assert found[title].diagnosis.endswith(".")
    assert re.search(r"\d", " ".join(found[title].evidence)), "the evidence has numbers"


def test_every_rule_has_its_ill_run() -> None:
    assert len(ILL) == len(RULES)


@pytest.mark.parametrize("title", ILL)
def test_findings_lead_to_settings_and_sections_that_exist(title: str) -> None:
    sections = re.findall(r"^## (.*)$", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    for finding in diagnose(ILL[title][1]):
        assert finding.title in sections
        assert finding.link == f"{PAGE}#{anchor(finding.title)}"
        settings = [word for text in finding.advice for word in re.findall(r"\b[a-z]+\.[a-z_]+(?:=[^\s;:,]+)?", text)]
        for name in (word.partition("=")[0] for word in settings):
            section, _, key = name.partition(".")
            assert section not in SECTIONS or key in field_names(SECTIONS[section]), name
        load_config("quickstart", [word for word in settings if "=" in word and word.split(".")[0] in SECTIONS])


def test_the_page_stays_in_alphabetical_order() -> None:
    sections = re.findall(r"^## (.*)$", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == sorted(sections)


def test_the_worst_comes_first() -> None:
    evidence = run({"truncated_share": line(0.0, 0.9), "loss": flat(0.0), "verify_s": flat(9.0), "step_s": flat(12.0)})
    assert titles(evidence) == ["Truncation", "Slow verifier", "A loss of 0 is normal"]


def test_cut_answers_outside_the_loss_are_worse() -> None:
    cut = {"truncated_share": flat(0.2)}
    assert titles(run(cut)) == []
    finding = diagnose(run(cut, "training.skip_unfinished_episodes=true"))[0]
    assert finding.title == "Truncation"
    assert any("skip_unfinished_episodes=false" in text for text in finding.advice)


def test_waste_is_told_in_percent_and_seconds() -> None:
    finding = diagnose(run(DEAD | {"zero_variance_share": flat(0.4), "sample_s": flat(10.0)}))[0]
    assert "40.0 %" in finding.diagnosis
    assert finding.evidence[0] == "about 120 s of 300 s of sampling (steps 1 to 30)"


def test_a_failed_verifier_is_quoted() -> None:
    samples = [{"reward": None, "reason": "ValueError: no number"}, {"reward": 1.0, "reason": "right"}]
    finding = diagnose(run({"failed_share": flat(0.2)}, samples=samples))[0]
    assert finding.severity == "problem"
    assert "the last one recorded: ValueError: no number" in finding.evidence


def test_bfloat16_may_differ_more() -> None:
    gap = {"logprob_gap": flat(0.01)}
    on_gpu = {"machine": {"device": "cuda:0"}}
    assert titles(run(gap, "model.device=auto", summary=on_gpu)) == []
    assert titles(run({"logprob_gap": flat(0.2)}, "model.device=auto", summary=on_gpu)) == [
        "Sampler and trainer disagree"
    ]


def test_updates_that_were_skipped_leave_the_weights_good() -> None:
    skipped = {"skipped_updates": lambda time: float(time == 1)}
    (finding,) = diagnose(run({"loss": lambda time: None if time == 1 else 0.1, **skipped}))
    assert (finding.title, finding.severity) == ("Non-finite numbers", "warning")
    assert finding.evidence[-1] == "updates skipped in 1 of 30 steps, the last 30"
    (finding,) = diagnose(run(skipped))
    assert finding.severity == "warning", "other updates of the step were taken"
    (finding,) = diagnose(run({"loss": lambda time: None if time in (0, 1) else 0.1, **skipped}))
    assert finding.severity == "problem", "one of the two was taken"


def test_spikes_that_lie_behind_are_a_note() -> None:
    (finding,) = diagnose(run({"grad_norm": lambda time: 9.0 if time == 0 else 0.1}))
    assert finding.severity == "warning", "one of 30 steps is not rare"
    steps = [{"step": step, "grad_norm": 9.0 if step == 10 else 0.1} for step in range(200)]
    (finding,) = diagnose(Evidence(load_config(None), steps))
    assert finding.severity == "note"


@pytest.mark.parametrize("name", TRAIN)
@pytest.mark.parametrize("keep", [True, False])
def test_a_metric_that_is_absent_is_no_matter(name: str, keep: bool) -> None:
    """Runs of other versions and other trainers lack some; ill runs too, since a rule may read the metric only then."""
    for evidence in (run(), *(evidence for _, evidence in ILL.values())):
        names = {name} if keep else evidence.train[0].keys() - {name, "step"}
        rows = [{"step": row["step"], **{key: row[key] for key in names if key in row}} for row in evidence.train]
        for evals in (evidence.evals, ()):
            for finding in diagnose(replace(evidence, train=rows, evals=evals)):
                assert finding.evidence


def test_few_steps_are_said_to_be_few() -> None:
    whole = run()
    early = Evidence(whole.config, whole.train[:4], whole.evals[:1])
    assert closing_line(early, 0) == "Nothing found, but 4 steps are few: rules on trends need 10."
