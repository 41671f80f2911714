"""What the watches of a run say, and when they say nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import run_config

from grpo_zero.config import TrainingConfig
from grpo_zero.observe.catalogue import CATALOGUE
from grpo_zero.observe.files import read_rows
from grpo_zero.train import loop as loop_module
from grpo_zero.train.run import train
from grpo_zero.train.watch import SamplerWatch, SkippedSteps, lowered_note

TAKEN = {"skipped_updates": 0, "num_updates": 1}
SKIPPED = {"skipped_updates": 1, "num_updates": 0, "loss": math.nan, "grad_norm": math.inf}
DEAD = {"skipped_updates": 0, "num_updates": 0}


def test_skipped_steps_are_counted_in_a_row() -> None:
    watch, rows = SkippedSteps(3), [SKIPPED, SKIPPED, TAKEN, SKIPPED, DEAD, SKIPPED, SKIPPED]
    found = []
    for step, metrics in enumerate(rows, start=1):
        note = watch.note(step, metrics)
        assert (note is None) == (metrics["skipped_updates"] == 0)
        found.append((watch.in_a_row, watch.is_over))
    assert found == [(1, False), (2, False), (0, False), (1, False), (1, False), (2, False), (3, True)]
    assert note.startswith("step 7 skipped: loss or gradient is not finite (loss nan, gradient norm inf); weights")
    assert note.endswith("3 in a row; the run stops at 3")


def test_some_updates_of_a_step_count_too() -> None:
    watch = SkippedSteps(2)
    note = watch.note(5, {"skipped_updates": 1, "num_updates": 3})
    assert note.startswith("1 of the 4 updates of step 5 skipped: ")
    assert watch.in_a_row == 1


def test_no_limit_never_stops() -> None:
    watch = SkippedSteps(None)
    notes = [watch.note(step, SKIPPED) for step in range(100)]
    assert not watch.is_over
    assert notes[-1].endswith("100 in a row")


def test_the_sampler_is_warned_of_once_and_again_after_it_had_come_back() -> None:
    limit = CATALOGUE["logprob_gap"].worry_above
    for watch, low, high in (
        (SamplerWatch(is_float32=False), limit * 0.9, limit * 1.1),
        (SamplerWatch(is_float32=True), 0.0009, 0.0011),
    ):
        gaps = [low, high, high, math.nan, high, low, high]
        found = [watch.note({"logprob_gap": gap}) for gap in gaps]
        assert [note is not None for note in found] == [False, True, False, False, False, False, True]
    assert watch.note({}) is None, "nothing was forwarded"
    assert SamplerWatch(is_float32=True, has_dropout=True).note({"logprob_gap": 9.0}) is None


def test_lowered_sizes_are_named() -> None:
    before = TrainingConfig()
    assert lowered_note(before, before) is None
    after = replace(before, micro_batch_tokens=512, num_slots=4)
    assert lowered_note(before, after) == (
        "memory ran out: training.micro_batch_tokens is now 512 and training.num_slots is now 4 for the rest of the run; what "
        "was under way was done again"
    )


@pytest.mark.usefixtures("digits_task")
@pytest.mark.parametrize("more", [(), ("lora.rank=4",), ("training.decode=static",), ("model.dtype=bfloat16",)])
def test_a_stale_sampler_is_told_of_once_and_a_normal_run_of_nothing(
    model_folder: Path, tmp_path: Path, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """P06, at run time: weights that change between sampling and update."""
    settings = (*more, "training.eval_interval=0", "training.learning_rate=0.001")
    normal = train(run_config(model_folder, tmp_path, *settings, "training.run_name=normal"))
    assert "sampler and trainer" not in capsys.readouterr().out
    collect = loop_module.collect

    def stale(policy: Any, *rest: Any) -> Any:
        rollout = collect(policy, *rest)
        with torch.no_grad():
            policy.decoder.layers[0].attention.output.weight.mul_(1.5)
        return rollout

    monkeypatch.setattr(loop_module, "collect", stale)
    folder = train(run_config(model_folder, tmp_path, *settings, "training.run_name=stale"))
    out = capsys.readouterr().out
    assert out.count("note: sampler and trainer disagree by ") == 1
    assert "training.decode_kernels=plain" in out
    limit = 0.05 if "model.dtype=bfloat16" in more else 0.001

    def gaps(run: Path) -> list[float]:
        return [row["logprob_gap"] for row in read_rows(run / "metrics.jsonl")]

    assert max(gaps(normal)) < limit / 2 < limit < min(gaps(folder))
    assert len(gaps(folder)) == 4
