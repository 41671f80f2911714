"""The catalogue is complete, and refuses what it does not know."""

from __future__ import annotations

import math

import pytest

from grpo_zero.observe.catalogue import (
    CATALOGUE,
    GROUPS,
    Metric,
    find_metric,
    markdown_table,
    require_known,
    worries,
)
from grpo_zero.observe.record import StepRecord


@pytest.mark.parametrize("metric", CATALOGUE.values(), ids=list(CATALOGUE))
def test_each_metric_is_explained(metric: Metric) -> None:
    assert metric.unit
    assert metric.definition.endswith(".")
    assert metric.healthy.endswith(".")
    assert "|" not in metric.definition + metric.healthy, "it would break the markdown table"


def test_names_are_unique() -> None:
    assert len(CATALOGUE) == sum(len(group) for group in GROUPS.values())


def test_parts_of_a_reward_share_one_entry() -> None:
    assert find_metric("reward/format") is CATALOGUE["reward/<part>"]
    assert find_metric("eval/reward/answer") is CATALOGUE["eval/reward/<part>"]
    for name in ("reward/", "rewards/format", "format", "eval/format", "length/format"):
        assert find_metric(name) is None


def test_unknown_metric_cannot_be_recorded() -> None:
    require_known(["reward", "reward/answer", "eval/success"])
    with pytest.raises(ValueError, match=r"'lenght' is not in .*Did you mean 'length'"):
        StepRecord(step=1, kind="train", metrics={"reward": 1.0, "lenght": 3.0})


def test_worries_follow_the_healthy_range() -> None:
    healthy = {"truncated_share": 0.1, "zero_variance_share": 0.5, "logprob_gap": 1e-6}
    assert worries({**healthy, "reward": 0.0, "length_right": math.nan}) == []
    assert worries({**healthy, "truncated_share": 0.2, "logprob_gap": math.nan}) == [
        "truncated_share",
        "logprob_gap",
    ]


def test_markdown_has_each_metric_and_well_formed_tables() -> None:
    text = markdown_table()
    for name in CATALOGUE:
        assert f"| `{name}` |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {5}
    assert "frac_reward_zero_std" in text
