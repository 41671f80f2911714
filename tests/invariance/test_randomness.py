"""One seed tree: a stream is found by its name alone."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from grpo_zero.randomness import stream


def test_equal_names_give_equal_numbers_on_every_machine() -> None:
    assert stream(1337, "sample", 3, 5).random(3).tolist() == stream(1337, "sample", 3, 5).random(3).tolist()
    expected = [0.5412127787496116, 0.6841963122226521, 0.23337337822113624]
    np.testing.assert_array_equal(stream(1337, "sample", 3, 5).random(3), expected)


def test_different_names_give_different_numbers() -> None:
    names = [
        (0, "order", 1),
        (0, "sample", 1),
        (0, "eval", 1),
        (1, "sample", 1),
        (0, "sample", 2),
        (2**40, "sample", 1),
    ]
    names += [(0, "sample", 1, 2, 3), (0, "sample", 1, 3, 2), (0, "sample", 2, 1, 3), (0, "eval", 1, 2, 3)]
    numbers = [tuple(stream(*name).random(4)) for name in names]
    for a, b in combinations(numbers, 2):
        assert not set(a) & set(b)


def test_asking_one_stream_moves_no_other() -> None:
    np.random.seed(0)
    first = np.random.random()
    np.random.seed(0)
    stream(0, "sample", 1).random(100)
    assert np.random.random() == first
