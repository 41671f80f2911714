"""One seed tree. Every use of chance has a stream of its own, found by name: nothing moves anyone else's stream."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """The random stream of ``(seed, purpose, *key)``.

    Args:
        seed: the run's ``training.random_seed``.
        purpose: ``"order"``, ``"sample"``, ``"eval"``, ``"init"``, ...: separate purposes never share numbers.
        key: what the stream belongs to, e.g. (step, problem, sample); non-negative integers, always as many of them for one
            purpose, since (1,) and (1, 0) name the same stream.

    Returns:
        A fresh generator at its start; the same arguments give the same numbers on every machine.
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, zlib.crc32(purpose.encode()), *key))))
