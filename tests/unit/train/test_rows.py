"""Which rows an update learns from, and with which weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from helpers.tiny import random_rows

from grpo_zero.train.metrics import merge_updates
from grpo_zero.train.rows import mini_batches, weigh

ROWS = random_rows(0, [3, 2, 4, 1, 2, 3])


def ids(rows) -> list[int]:
    return [id(row) for row in rows]


def test_one_update_takes_all_rows_in_order() -> None:
    [only] = mini_batches(ROWS, 1, 6, seed=0, step=1)
    assert ids(only) == ids(ROWS)


@pytest.mark.parametrize("num_passes", [1, 2, 3])
@pytest.mark.parametrize("questions_per_update", [1, 2, 3, 4, 6, 24])
def test_each_pass_sees_every_question_once_and_whole(num_passes: int, questions_per_update: int) -> None:
    """Also where fewer are left than a step draws: a part is never larger than asked, and parts of a pass are alike in size."""
    updates = list(mini_batches(ROWS, num_passes, questions_per_update, seed=0, step=1))
    num_parts = -(-6 // questions_per_update)
    assert len(updates) == num_passes * num_parts
    for start in range(0, len(updates), num_parts):
        one_pass = [row for part in updates[start : start + num_parts] for row in part]
        assert sorted(ids(one_pass)) == sorted(ids(ROWS))
        groups = [{row.group for row in part} for part in updates[start : start + num_parts]]
        assert sum(map(len, groups)) == len(set.union(*groups)) == 6
        sizes = [len(part) for part in groups]
        assert max(sizes) <= questions_per_update
        assert max(sizes) - min(sizes) <= 1
    for part in updates:
        assert [row.group for row in part] == sorted(row.group for row in part), "rows of a group stand together"


def test_the_parts_are_named_by_seed_step_and_pass() -> None:
    def parts(seed: int, step: int) -> list[set[int]]:
        return [{row.group for row in part} for part in mini_batches(ROWS, 2, 3, seed=seed, step=step)]

    assert parts(0, 1) == parts(0, 1)
    assert len({str(parts(seed, step)) for seed in range(3) for step in range(3)}) > 6
    assert any(parts(0, step)[:2] != parts(0, step)[2:] for step in range(5)), "passes differ"


def test_no_rows_give_no_updates() -> None:
    assert list(mini_batches([], 4, 2, seed=0, step=1)) == []
    assert weigh([], "token", 8) == []


@pytest.mark.parametrize("average", ["sequence", "token", "constant"])
def test_weights_are_the_updates_own(average: str) -> None:
    """L04: whatever else the rollout holds. Over all tokens they sum to 1, or to the mean length over the longest possible."""
    for part in mini_batches(ROWS, 1, 3, seed=0, step=1):
        weighed = weigh(part, average, max_length=10)
        total = sum(row.weight * len(row.completion_ids) for row in weighed)
        mean_length = sum(len(row.completion_ids) for row in part) / len(part)
        assert total == pytest.approx(mean_length / 10 if average == "constant" else 1.0)
        assert [replace(row, weight=1.0) for row in weighed] == part


def test_a_token_mean_is_over_the_update_not_over_each_question() -> None:
    """L17: a question with short answers weighs less than one with long answers, by its tokens."""
    assert len({row.weight for row in weigh(ROWS, "token", max_length=10)}) == 1
    per_question = {
        group: sum(row.weight * len(row.completion_ids) for row in weigh(ROWS, "token", 10) if row.group == group)
        for group in range(6)
    }
    assert len(set(per_question.values())) > 1


def test_facts_of_several_updates_become_one() -> None:
    dead = {"loss": 0.0, "grad_norm": 0.0, "forwarded_tokens": 0}
    first = {"loss": 0.3, "grad_norm": 3.0, "forwarded_tokens": 10, "entropy": 1.0, "logprob_gap": 0.001}
    second = {"loss": 0.6, "grad_norm": 0.0, "forwarded_tokens": 30, "entropy": 2.0, "logprob_gap": 0.5}
    first, second = (facts | {"skipped_updates": 0} for facts in (first, second))
    merged = merge_updates([dead, first, second])
    assert merged == pytest.approx(
        {
            "num_updates": 2,
            "skipped_updates": 0,
            "loss": 0.45,
            "grad_norm": 1.5,
            "forwarded_tokens": 40,
            "entropy": 1.75,
            "logprob_gap": 0.001,
        }
    )
    assert merge_updates([dead]) == merge_updates([]) == {"num_updates": 0, "skipped_updates": 0, **dead}


def test_a_skipped_update_is_counted_and_in_no_mean_of_the_others() -> None:
    taken = {"loss": 0.3, "grad_norm": 3.0, "forwarded_tokens": 10, "logprob_gap": 0.001, "entropy": 1.0}
    broken = dict.fromkeys(taken, math.nan) | {"forwarded_tokens": 30, "skipped_updates": 1}
    merged = merge_updates([taken | {"skipped_updates": 0}, broken])
    assert merged == pytest.approx(taken | {"num_updates": 1, "skipped_updates": 1, "forwarded_tokens": 40})
    alone = merge_updates([broken])
    assert (alone["num_updates"], alone["skipped_updates"]) == (0, 1)
    assert math.isnan(alone["loss"]), "shown as it was"
