"""Who runs where: no completion is lost, none is answered twice, and cache rows follow their owners."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.rollout.scheduler import Move, Scheduler


def names(scheduler: Scheduler) -> list[tuple[int, int]]:
    return [(row.prompt_index, row.sample_index) for row in scheduler.running]


def test_admits_prompt_by_prompt_into_the_free_slots() -> None:
    scheduler = Scheduler(num_prompts=2, num_samples=3, num_slots=4)
    assert [(row.prompt_index, row.sample_index) for row in scheduler.admit()] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert scheduler.admit() == []
    scheduler.retire([1])
    admitted = scheduler.admit()
    assert [(row.prompt_index, row.sample_index) for row in admitted] == [(1, 1)]
    assert names(scheduler) == [(0, 0), (1, 0), (0, 2), (1, 1)]


def test_the_tail_fills_the_gaps() -> None:
    scheduler = Scheduler(num_prompts=1, num_samples=5, num_slots=5)
    scheduler.admit()
    assert scheduler.retire([4, 0]) == [Move(3, 0)]
    assert names(scheduler) == [(0, 3), (0, 1), (0, 2)]
    assert scheduler.retire([2, 1, 0]) == []
    assert scheduler.is_done


def test_is_done_only_when_nothing_waits_or_runs() -> None:
    scheduler = Scheduler(num_prompts=1, num_samples=2, num_slots=1)
    assert not scheduler.is_done
    scheduler.admit()
    scheduler.retire([0])
    assert not scheduler.is_done
    scheduler.admit()
    assert not scheduler.is_done
    scheduler.retire([0])
    assert scheduler.is_done


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 7), st.integers(0, 1000))
def test_every_completion_runs_once_and_its_row_follows_it(num_prompts, num_samples, num_slots, seed) -> None:
    draw = random.Random(seed)
    scheduler = Scheduler(num_prompts, num_samples, num_slots)
    cache: list[tuple[int, int] | None] = [None] * num_slots
    finished = []
    while not scheduler.is_done:
        first_free = len(scheduler.running)
        for slot, row in enumerate(scheduler.admit(), first_free):
            cache[slot] = (row.prompt_index, row.sample_index)
        assert 1 <= len(scheduler.running) <= num_slots
        ended = draw.sample(range(len(scheduler.running)), draw.randint(0, len(scheduler.running)))
        finished += [names(scheduler)[slot] for slot in ended]
        for move in scheduler.retire(ended):
            cache[move.target] = cache[move.source]
        assert names(scheduler) == cache[: len(scheduler.running)]
    assert sorted(finished) == [(p, g) for p in range(num_prompts) for g in range(num_samples)]
