"""Packing: what predicts what, within which limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.tiny import random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.model.attention import GroupLayout, dense_mask
from grpo_zero.train.batch import MAX_PADDING, TrainRow, pack, split_micro_batches

CPU = torch.device("cpu")


def layouts_of(rows: list[TrainRow]) -> tuple[list[GroupLayout], int]:
    """By hand: a completion's last token takes no place, what all prompts begin with takes one."""
    prompts = {row.group: row.prompt_ids for row in rows}
    shared = 0
    while len(prompts) > 1 and min(map(len, prompts.values())) > shared + 1:
        if len({ids[shared] for ids in prompts.values()}) > 1:
            break
        shared += 1
    out = []
    for group in sorted(prompts):
        lengths = tuple(len(row.completion_ids) - 1 for row in rows if row.group == group and row.completion_ids)
        out.append(GroupLayout(len(prompts[group]) - shared, lengths))
    return out, shared


def check_every_target(rows: list[TrainRow]) -> None:
    """Each target's predictor sees exactly its prompt and the completion before it, in order, at the right positions."""
    batch = pack(rows, CPU)
    mask_TT = torch.from_numpy(dense_mask(*layouts_of(rows)))
    assert len(mask_TT) == len(batch.tokens_T) == len(batch.positions_T)
    expected = [
        ([*row.prompt_ids, *row.completion_ids[:t]], target, row.advantage)
        for row in rows
        for t, target in enumerate(row.completion_ids)
    ]
    found = []
    for predictor, target, advantage in zip(
        batch.predictor_C, batch.completion.targets_C, batch.completion.advantages_C, strict=True
    ):
        seen = mask_TT[predictor]
        order = batch.positions_T[seen].argsort()
        assert batch.positions_T[seen][order].tolist() == list(range(int(seen.sum())))
        found.append((batch.tokens_T[seen][order].tolist(), target.item(), pytest.approx(advantage.item())))
    assert found == expected


@pytest.mark.parametrize("seed", range(4))
def test_every_completion_token_is_predicted_from_its_own_past(seed: int) -> None:
    check_every_target(random_rows(seed, [3, 1, 4]))


@pytest.mark.parametrize("seed", range(4))
def test_what_prompts_begin_with_stands_once(seed: int) -> None:
    begun = [replace(row, prompt_ids=[7, 8, 9, *row.prompt_ids]) for row in random_rows(seed, [3, 1, 4])]
    check_every_target(begun)
    apart = sum(len(pack([row for row in begun if row.group == g], CPU).tokens_T) for g in range(3))
    assert len(pack(begun, CPU).tokens_T) <= apart - 2 * 3


def test_one_token_completions_take_no_place() -> None:
    rows = [TrainRow(0, [1, 2], [3], 1.0), TrainRow(0, [1, 2], [4], -1.0)]
    assert pack(rows, CPU).tokens_T.tolist() == [1, 2]
    check_every_target(rows)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_empty_completions_contribute_nothing(place: int) -> None:
    """L08."""
    rows = random_rows(0, [2, 2])
    empty = TrainRow(rows[min(place, 1)].group, rows[min(place, 1)].prompt_ids, [], 5.0)
    with_empty = [*rows[:place], empty, *rows[place:]]
    check_every_target(with_empty)
    assert torch.equal(pack(with_empty, CPU).completion.targets_C, pack(rows, CPU).completion.targets_C)


def test_nothing_but_empty_completions() -> None:
    batch = pack([TrainRow(0, [1, 2], [], 1.0)], CPU)
    assert len(batch.completion.targets_C) == len(batch.predictor_C) == len(batch.completion.advantages_C) == 0


def test_masks_come_from_lengths_not_from_token_values() -> None:
    """L13, L14: 0 is pad and end here; the end token is trained, and whatever the ids are, n ids give n targets."""
    rows = [TrainRow(0, [0, 0, 5], [7, 0], 1.0), TrainRow(0, [0, 0, 5], [0, 0, 0], 2.0), TrainRow(1, [0], [0], 3.0)]
    check_every_target(rows)
    batch = pack(rows, CPU)
    assert batch.completion.targets_C.tolist() == [7, 0, 0, 0, 0, 0]
    assert batch.completion.advantages_C.tolist() == [1, 1, 2, 2, 2, 3]


def test_sampled_logprobs_stand_beside_their_tokens() -> None:
    rows = [TrainRow(0, [1], [2, 3], 1.0, [-0.5, -0.25]), TrainRow(0, [1], [4], 1.0)]
    torch.testing.assert_close(
        pack(rows, CPU).completion.sampled_logprobs_C, torch.tensor([-0.5, -0.25, float("nan")]), equal_nan=True
    )


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.integers(1, 60),
    st.none() | st.integers(1, 8),
)
def test_micro_batches_keep_order_and_limits(seed, group_sizes, max_tokens, max_rows) -> None:
    """M02: only the micro-batch shrinks; every row is there once, and its group stays together."""
    rows = random_rows(seed, group_sizes)
    batches = list(split_micro_batches(rows, max_tokens, max_rows))
    assert [row for batch in batches for row in batch] == rows

    def fits(batch: list[TrainRow]) -> bool:
        padded = len(batch) * max(len(row.completion_ids) for row in batch)
        fits_tokens = len(pack(batch, CPU).tokens_T) <= max_tokens and padded <= MAX_PADDING * max_tokens
        return fits_tokens and (max_rows is None or len(batch) <= max_rows)

    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        assert fits(batch) or len(batch) == 1
        assert following is None or not fits([*batch, following[0]]), "cut although the next row had room"


def test_no_limits_give_one_micro_batch_and_no_rows_none() -> None:
    rows = random_rows(1, [4, 4])
    assert list(split_micro_batches(rows, 10**9, None)) == [rows]
    assert list(split_micro_batches([], 10, None)) == []


def test_a_divided_group_repeats_its_prompt() -> None:
    rows = [TrainRow(0, [1, 2, 3], [4, 5], 1.0), TrainRow(0, [1, 2, 3], [6, 7], 1.0)]
    streams = [pack(batch, CPU).tokens_T.tolist() for batch in split_micro_batches(rows, 100, 1)]
    assert streams == [[1, 2, 3, 4], [1, 2, 3, 6]]
    assert np.concatenate(streams).shape == (8,)
