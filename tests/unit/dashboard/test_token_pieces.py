"""Tokens of an answer as the page gets them: cut to what is shown, characters of several tokens together."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_zero.dashboard.token_pieces import pieces, stop_logprob

ROW = {
    "response": "ab😀cdef",
    "finish_reason": "stop",
    "token_characters": [2, 0, 0, 1, 3, 1, 0],
    "token_logprobs": [-0.5, -1.0, -2.0, -0.25, -0.125, 0.0, -3.0],
}


def test_each_token_with_its_log_prob() -> None:
    assert pieces(ROW, 0, 100) == [(2, -0.5), (1, -3.25), (3, -0.125), (1, 0.0)]
    assert stop_logprob(ROW) == -3.0
    assert stop_logprob(ROW | {"finish_reason": "length"}) is None


def test_a_part_of_the_text_gets_its_part_of_the_tokens() -> None:
    assert pieces(ROW, 0, 4) == [(2, -0.5), (1, -3.25), (1, -0.125)]
    assert pieces(ROW, 4, 100) == [(2, -0.125), (1, 0.0)]
    assert pieces(ROW, 1, 1) == [(1, -0.5)]
    assert pieces(ROW, 100, 5) == []
    for cut in range(8):
        counts = [count for start, size in ((0, cut), (cut, 100)) for count, _ in pieces(ROW, start, size) or ()]
        assert sum(counts) == 7


@pytest.mark.parametrize(
    "damage",
    [
        {"token_characters": None},
        {"token_logprobs": None},
        {"token_logprobs": [-0.5]},
        {"token_characters": [2, 0, 0, 1, 3, 2, 0]},
        {"token_characters": [2, 0, 0, 1, 5, -1, 0]},
        {"token_characters": [2, 0, 0, 1, 3.0, 1, 0]},
        {"token_logprobs": [-0.5, -1.0, -2.0, None, -0.125, 0.0, -3.0]},
        {"token_logprobs": [-0.5, -1.0, -2.0, "<b>", -0.125, 0.0, -3.0]},
        {"token_logprobs": [-0.5, -1.0, -2.0, float("nan"), -0.125, 0.0, -3.0]},
        {"token_logprobs": [-0.5, -1.0, -2.0, float("-inf"), -0.125, 0.0, -3.0]},
        {"token_logprobs": [-0.5, -1.0, -2.0, -(10**400), -0.125, 0.0, -3.0]},
        {"token_logprobs": [-0.5, -1.0, -2.0, True, -0.125, 0.0, -3.0]},
        {"response": "short"},
    ],
)
def test_what_was_not_recorded_or_does_not_fit_is_none(damage: dict[str, Any]) -> None:
    assert pieces(ROW | damage, 0, 100) is None
    assert stop_logprob(ROW | damage) is None


def test_an_empty_answer() -> None:
    row = {"response": "", "finish_reason": "stop", "token_characters": [0], "token_logprobs": [-0.1]}
    assert (pieces(row, 0, 9), stop_logprob(row)) == ([], -0.1)
    assert stop_logprob({"response": "", "finish_reason": "stop", "token_characters": [], "token_logprobs": []}) is None
