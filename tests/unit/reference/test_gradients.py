"""Every hand-written gradient of the reference against central differences of its value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pytest

from grpo_zero.reference import advantages, averages, kl, losses, objectives, ratios, softmax, statistics

MODULES = [advantages, averages, kl, losses, objectives, ratios, softmax, statistics]
STEP = 1e-6
RNG = np.random.default_rng(0)
LOGPROBS = RNG.normal(-1.0, 0.5, 7)
OLD = LOGPROBS + RNG.normal(0, 0.3, 7)
RATIO = np.exp(LOGPROBS - OLD)
ADVANTAGES = RNG.normal(size=7)
LOGITS = RNG.normal(size=(4, 6))
TARGETS = np.array([0, 5, 2, 2])
REWARDS = RNG.normal(size=(3, 5))
SOME_UNUSABLE = np.where(RNG.random((3, 5)) < 0.25, np.nan, REWARDS)
FAR = np.array([-30.0, 0.1, 25.0, -0.2])

CASES: dict[str, list[tuple[Callable[..., Any], np.ndarray, tuple[Any, ...]]]] = {
    "advantages": [
        (partial(advantages.advantages, baseline=b, scale=c, std=s), r, ())
        for b, c, s, r in product(
            ("mean", "leave_one_out"),
            ("none", "group_std", "batch_std", "whiten"),
            ("population", "sample"),
            (REWARDS, SOME_UNUSABLE),
        )
    ],
    "kl_estimate": [
        (partial(kl.kl_estimate, estimator=k), x, (y,))
        for k, (x, y) in product(("k1", "k2", "k3"), ((LOGPROBS, OLD), (FAR, np.zeros(4))))
    ],
    "clipped_objective": [
        (partial(objectives.clipped_objective, clip_low=0.1, clip_high=0.2, dual_clip=d), r, (a,))
        for d, (r, a) in product((None, 3.0), ((RATIO, ADVANTAGES), (np.array([0.5, 4.0, 4.0]), np.array([-1, -1, 1]))))
    ],
    "cispo_objective": [(partial(objectives.cispo_objective, clip_high=0.1), LOGPROBS, (RATIO, ADVANTAGES))],
    "policy_gradient_objective": [(objectives.policy_gradient_objective, LOGPROBS, (ADVANTAGES,))],
    "token_ratio": [(ratios.token_ratio, LOGPROBS, (OLD,)), (ratios.token_ratio, FAR, (np.zeros(4),))],
    "sequence_ratio": [(ratios.sequence_ratio, LOGPROBS, (OLD,)), (ratios.sequence_ratio, 30 + FAR, (np.zeros(4),))],
    "token_logprobs": [(partial(softmax.token_logprobs, temperature=t), LOGITS, (TARGETS,)) for t in (1.0, 0.6)],
    "entropy": [(softmax.entropy, LOGITS, ())],
    "zero_variance_probability": [
        (partial(statistics.zero_variance_probability, group_size=8), np.array([0.1, 0.5, 0.9]), ())
    ],
}


def gradient_functions() -> set[str]:
    names = {
        name for m in MODULES for name, _ in inspect.getmembers(m, inspect.isfunction) if name.endswith("_gradient")
    }
    return {name for name in names if not name.startswith("_")}


def test_every_gradient_has_cases() -> None:
    assert {f"{name}_gradient" for name in CASES} == gradient_functions()


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_slope(name: str) -> None:
    for function, x, arguments in CASES[name]:
        plain = function.func if isinstance(function, partial) else function
        keywords = function.keywords if isinstance(function, partial) else {}
        gradient = getattr(import_module(plain.__module__), f"{name}_gradient")
        upstream = np.random.default_rng(1).normal(size=np.shape(function(x, *arguments)))
        found = gradient(x, *arguments, upstream, **keywords)
        np.testing.assert_allclose(found, slope(lambda v, f=function, a=arguments: f(v, *a), x, upstream), atol=1e-6)


def slope(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, upstream: np.ndarray) -> np.ndarray:
    """Central differences of ``sum(upstream * f(x))`` in every entry of x that is a number."""
    out = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        if np.isnan(x[index]):
            continue
        above, below = x.copy(), x.copy()
        above[index] += STEP
        below[index] -= STEP
        out[index] = (upstream * (function(above) - function(below))).sum() / (2 * STEP)
    return out


@pytest.mark.parametrize("average", ["sequence", "token", "constant"])
@pytest.mark.parametrize("objective", ["clipped", "cispo", "policy_gradient"])
@pytest.mark.parametrize("ratio_level", ["token", "sequence"])
def test_whole_loss(average: str, objective: str, ratio_level: str) -> None:
    rng = np.random.default_rng(2)
    lengths = [3, 0, 1, 6]
    logprobs, noise, held = ([rng.normal(-1, 0.4, n) for n in lengths] for _ in range(3))
    old = [x + 0.3 * (1 + y) for x, y in zip(logprobs, noise, strict=True)]
    advantages_B = np.array([0.7, 1.0, -1.2, -0.4])
    settings = {
        "objective": objective,
        "ratio_level": ratio_level,
        "average": average,
        "max_length": 8,
        "dual_clip": 3.0,
        "reference_logprobs": held,
        "kl_weight": 0.1,
    }
    _, gradients = losses.policy_loss(logprobs, old, advantages_B, **settings)
    for i, x in enumerate(logprobs):

        def value(v: np.ndarray, i: int = i, x: np.ndarray = x) -> np.ndarray:
            changed = [*logprobs[:i], v, *logprobs[i + 1 :]]
            if objective != "cispo":
                return np.array(losses.policy_loss(changed, old, advantages_B, **settings)[0])
            # The capped ratio is a constant to CISPO's gradient: hold it by moving the old log-probs along.
            moved = [*old[:i], old[i] + _along(v - x, ratio_level), *old[i + 1 :]]
            return np.array(losses.policy_loss(changed, moved, advantages_B, **settings)[0])

        np.testing.assert_allclose(gradients[i], slope(value, x, np.array(1.0)), atol=1e-7)


def _along(change_T: np.ndarray, ratio_level: str) -> np.ndarray:
    return change_T if ratio_level == "token" else np.full(len(change_T), change_T.mean() if len(change_T) else 0.0)
