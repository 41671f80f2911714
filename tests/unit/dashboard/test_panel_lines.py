"""What a chart is sent: no spike lost, every metric explained, a step's seconds adding up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.recorded import start_run, write_steps
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.dashboard.downsample import kept_rows
from grpo_zero.dashboard.metrics_table import MetricsTable
from grpo_zero.dashboard.panels import PANELS, recorded
from grpo_zero.dashboard.series import describe, panel_lines, trailing_mean
from grpo_zero.observe.catalogue import CATALOGUE

PANEL = {panel.key: panel for panel in PANELS}


@given(st.integers(1, 3000), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_least_and_greatest_are_kept(num_rows: int, num_columns: int, seed: int) -> None:
    noise = np.random.default_rng(seed)
    columns = noise.normal(size=(num_columns, num_rows))
    columns[noise.random(columns.shape) < 0.3] = np.nan
    kept = kept_rows(list(columns), 100)
    assert len(kept) <= 100
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == num_rows - 1
    for column in columns:
        if not np.isnan(column).all():
            assert np.nanmax(column[kept]) == np.nanmax(column)
            assert np.nanmin(column[kept]) == np.nanmin(column)


@pytest.fixture
def table(tmp_path: Path) -> MetricsTable:
    folder = start_run(tmp_path / "run", 3000)
    write_steps(folder, 0, 3000, 3000, questions=1, answers=1)
    table = MetricsTable()
    table.refresh(folder / "metrics.jsonl")
    return table


def test_a_spike_of_one_step_reaches_the_page_and_zooming_shows_every_step(table: MetricsTable) -> None:
    table.training.columns["grad_norm"][1234] = 99.0
    [line] = panel_lines(PANEL["grad_norm"], table, 100)
    assert len(line["steps"]) <= 100
    assert line["values"][line["steps"].index(1235)] == 99.0
    [near] = panel_lines(PANEL["grad_norm"], table, 100, 1200, 1260)
    assert near["steps"] == list(range(1200, 1261))
    assert panel_lines(PANEL["grad_norm"], table, 100, 9000, 9999) == []


def test_intervals_come_with_their_line(table: MetricsTable) -> None:
    lines = panel_lines(PANEL["success"], table, 100)
    assert [line["name"] for line in lines] == ["eval/success", "eval/greedy_success"]
    for line in lines:
        assert len(line["low"]) == len(line["steps"]) == len(line["high"])
        assert all(
            low < value < high for low, value, high in zip(line["low"], line["values"], line["high"], strict=True)
        )


def test_the_parts_of_a_step_add_up(table: MetricsTable) -> None:
    lines = panel_lines(PANEL["seconds"], table, 10_000)
    assert {line["name"] for line in lines} >= {"prefill", "sampling", "optimizer", "the rest"}
    total = np.sum([line["values"] for line in lines], axis=0)
    np.testing.assert_allclose(total, table.series("step_s")[1], rtol=1e-4)


def test_training_and_evaluation_in_one_chart_keep_their_own_steps(table: MetricsTable) -> None:
    train, evaluation = panel_lines(PANEL["truncated"], table, 10_000)
    assert len(train["steps"]) == 3000
    assert evaluation["steps"] == list(range(0, 3001, 10))


def test_means_over_steps(table: MetricsTable) -> None:
    values = np.array([1.0, np.nan, 3.0, 5.0, np.nan, np.nan, np.nan])
    np.testing.assert_equal(trailing_mean(values, 1), values)
    np.testing.assert_allclose(trailing_mean(values, 3), [1, 1, 2, 4, 4, 5, np.nan])
    np.testing.assert_allclose(trailing_mean(values, 100), [1, 1, 2, 3, 3, 3, 3])
    plain, smooth = (panel_lines(PANEL["truncated"], table, 10_000, window=window) for window in (1, 50))
    assert np.std(np.diff(smooth[0]["values"])) < 0.1 * np.std(np.diff(plain[0]["values"]))
    assert smooth[1] == plain[1], "evaluations stay"


def test_parts_are_spelled_out_and_what_is_not_there_is_not_drawn() -> None:
    names = ["reward", "reward/format", "reward/answer", "penalty/overlong", "note/strict", "eval/note/strict"]
    assert recorded(PANEL["reward"], names) == ["reward", "reward/format", "reward/answer", "penalty/overlong"]
    assert recorded(PANEL["notes"], names) == ["note/strict", "eval/note/strict"]
    assert recorded(PANEL["kl"], names) == []


def test_every_metric_of_a_chart_is_the_catalogues() -> None:
    for panel in PANELS:
        assert set(panel.metrics) <= set(CATALOGUE), panel.key
        assert {part.metric for part in panel.parts} <= set(panel.metrics), panel.key
    assert len({panel.key for panel in PANELS}) == len(PANELS)
    found = describe("zero_variance_share")
    metric = CATALOGUE["zero_variance_share"]
    assert (found["unit"], found["definition"], found["worry_above"]) == ("share", metric.definition, 0.5)
    assert describe("made_up")["definition"] == "Not in the catalogue."
    json.dumps(found, allow_nan=False)
