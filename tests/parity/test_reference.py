"""Torch against the NumPy reference, function by function and preset by preset: values and gradients to 1e-9 in float64.

Both packages are walked: a function of ``algorithms`` without a twin of the same name in ``reference``, or without a case here,
fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import grpo_zero
from grpo_zero.presets import PRESETS, AlgorithmConfig, with_preset
from grpo_zero.reference import kl as reference_kl
from grpo_zero.reference import losses as reference_losses
from grpo_zero.reference import objectives as reference_objectives
from grpo_zero.reference import ratios as reference_ratios
from grpo_zero.reference import softmax
from grpo_zero.train.logprobs import dense_logprobs

PACKAGE = Path(grpo_zero.__file__).parent
RNG = np.random.default_rng(7)
LENGTHS = np.array([3, 1, 0, 6, 4])
NUM_TOKENS = int(LENGTHS.sum())
ROW_T = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
LOGPROBS_T = RNG.normal(-1.0, 0.5, NUM_TOKENS)
OLD_T = LOGPROBS_T + RNG.normal(0, 0.3, NUM_TOKENS)
HELD_T = LOGPROBS_T + RNG.normal(0, 0.3, NUM_TOKENS)
FAR_T = np.where(np.arange(NUM_TOKENS) % 3 == 0, LOGPROBS_T + 150.0, LOGPROBS_T - 150.0)
RATIO_T = np.exp(LOGPROBS_T - OLD_T)
ADVANTAGES_B = RNG.normal(size=len(LENGTHS))
ADVANTAGES_T = np.repeat(ADVANTAGES_B, LENGTHS)
REWARDS_PG = RNG.choice([0.0, 0.1, 1.1], size=(6, 5)) + np.eye(6, 5) * 0.05
REWARDS_PG[1] = 0.1
SOME_UNUSABLE_PG = np.where(RNG.random((6, 5)) < 0.25, np.nan, REWARDS_PG)
CORRECT_PG = np.array([[True, True], [True, False], [False, False]])

Sides = tuple[Callable[..., Any], Callable[..., Any]]


def split(flat_T: np.ndarray) -> list[np.ndarray]:
    """A stream as one array for each completion."""
    return np.split(flat_T, np.cumsum(LENGTHS)[:-1])


def twins(name: str, **settings: Any) -> Callable[[np.ndarray, Sequence[Any]], None]:
    """A case of a function with the same arguments on both sides."""

    def check(x: np.ndarray, others: Sequence[Any] = ()) -> None:
        module, function = name.split(".")
        judge = getattr(import_module(f"grpo_zero.reference.{module}"), function)
        judge_gradient = getattr(import_module(f"grpo_zero.reference.{module}"), f"{function}_gradient", None)
        fast = partial(getattr(import_module(f"grpo_zero.algorithms.{module}"), function), **settings)
        expected = judge(x, *others, **settings)
        leaf = torch.tensor(x, requires_grad=bool(judge_gradient))
        found = fast(leaf, *[torch.as_tensor(other) if isinstance(other, np.ndarray) else other for other in others])
        same(found, expected)
        if judge_gradient:
            upstream = np.random.default_rng(1).normal(size=found.shape)
            found.backward(torch.from_numpy(upstream))
            same(leaf.grad, judge_gradient(x, *others, upstream, **settings))

    return check


def same(found: Tensor, expected: np.ndarray) -> None:
    assert found.dtype in (torch.float64, torch.bool, torch.int64), "no function leaves float64 on the way"
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def check_advantages() -> None:
    """A group with equal rewards has value 0 on both sides but no derivative, so gradients are compared on the others."""
    for baseline, scale, std in product(
        ("mean", "leave_one_out"), ("none", "group_std", "batch_std", "whiten"), ("population", "sample")
    ):
        settings = {"baseline": baseline, "scale": scale, "std": std}
        fast = import_module("grpo_zero.algorithms.advantages").advantages
        judge = import_module("grpo_zero.reference.advantages").advantages
        for rewards_PG in (REWARDS_PG, SOME_UNUSABLE_PG):
            same(fast(torch.from_numpy(rewards_PG), **settings), judge(rewards_PG, **settings))
        twins("advantages.advantages", **settings)(np.delete(REWARDS_PG, 1, 0))


def check_sequence_ratio() -> None:
    """One completion at a time against the stream."""
    judge = import_module("grpo_zero.reference.ratios")
    fast = import_module("grpo_zero.algorithms.ratios").sequence_ratio
    for old_T in (OLD_T, FAR_T):
        leaf = torch.tensor(LOGPROBS_T, requires_grad=True)
        found = fast(leaf, torch.from_numpy(old_T), torch.from_numpy(ROW_T))
        pieces = [pair for pair in zip(split(LOGPROBS_T), split(old_T), strict=True) if len(pair[0])]
        same(found, np.concatenate([judge.sequence_ratio(*pair) for pair in pieces]))
        found.backward(torch.from_numpy(ADVANTAGES_T))
        upstream = [piece for piece in split(ADVANTAGES_T) if len(piece)]
        slopes = [judge.sequence_ratio_gradient(*pair, u) for pair, u in zip(pieces, upstream, strict=True)]
        same(leaf.grad, np.concatenate(slopes))


def check_policy_loss() -> None:
    for name in PRESETS:
        for parts in ({}, {"kl_weight": 0.2, "kl_estimator": "k2"}):
            check_loss_of(AlgorithmConfig(**with_preset({"preset": name, **parts})))
    check_loss_of(AlgorithmConfig(dual_clip=1.2))


def check_likelihood_loss() -> None:
    weights_B = RNG.random(len(LENGTHS))
    loss, slopes = reference_losses.likelihood_loss(split(LOGPROBS_T), weights_B)
    leaf = torch.tensor(LOGPROBS_T, requires_grad=True)
    found = import_module("grpo_zero.algorithms.losses").likelihood_loss(leaf, torch.from_numpy(weights_B[ROW_T]))
    found.backward()
    same(found, np.array(loss))
    same(leaf.grad, np.concatenate(slopes))


def check_loss_of(algorithm: AlgorithmConfig) -> None:
    """The whole loss of one update, from log-probs and rewards-free advantages: value and slope."""
    names = ("objective", "ratio_level", "clip_low", "clip_high", "dual_clip", "kl_weight", "kl_estimator")
    settings = {name: getattr(algorithm, name) for name in names}
    held = {"reference_logprobs": split(HELD_T)} if algorithm.kl_weight else {}
    for old_T in (OLD_T, LOGPROBS_T, FAR_T):
        loss, slopes = reference_losses.policy_loss(
            split(LOGPROBS_T), split(old_T), ADVANTAGES_B, average=algorithm.average, max_length=8, **settings, **held
        )
        weights_B = import_module("grpo_zero.algorithms.averages").token_weights(
            torch.from_numpy(LENGTHS), algorithm.average, 8
        )
        leaf = torch.tensor(LOGPROBS_T, requires_grad=True)
        found, facts = import_module("grpo_zero.algorithms.losses").policy_loss(
            leaf,
            torch.from_numpy(old_T),
            torch.from_numpy(ADVANTAGES_T),
            weights_B[torch.from_numpy(ROW_T)],
            torch.from_numpy(ROW_T),
            reference_logprobs_T=torch.from_numpy(HELD_T) if algorithm.kl_weight else None,
            **settings,
        )
        found.backward()
        same(found, np.array(loss))
        same(leaf.grad, np.concatenate(slopes))
        check_facts(facts, old_T, algorithm)


def check_facts(facts: dict[str, Tensor], old_T: np.ndarray, algorithm: AlgorithmConfig) -> None:
    """What is reported beside the loss: r - 1 - log r under the old samples, clipped tokens of either side, KL to the start."""
    same(facts["kl_old"], reference_kl.kl_estimate(old_T, LOGPROBS_T).sum())
    if algorithm.kl_weight:
        same(facts["kl_reference"], reference_kl.kl_estimate(LOGPROBS_T, HELD_T).sum())
    if algorithm.objective == "clipped":
        ratio = reference_ratios.token_ratio if algorithm.ratio_level == "token" else reference_ratios.sequence_ratio
        ratio_T = np.concatenate(
            [ratio(*pair) for pair in zip(split(LOGPROBS_T), split(old_T), strict=True) if len(pair[0])]
        )
        bounds = (algorithm.clip_low, algorithm.clip_high, algorithm.dual_clip)
        is_clipped_T = reference_objectives.is_clipped(ratio_T, ADVANTAGES_T, *bounds)
        same(facts["clip_fraction_low"], (is_clipped_T & (ADVANTAGES_T < 0)).sum())
        same(facts["clip_fraction_high"], (is_clipped_T & (ADVANTAGES_T > 0)).sum())


def several(*calls: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


CASES: dict[str, Callable[[], None]] = {
    "advantages.advantages": check_advantages,
    "averages.token_weights": several(
        *[
            partial(twins("averages.token_weights", average=average, max_length=8), LENGTHS)
            for average in ("sequence", "token", "constant")
        ]
    ),
    "groups.is_mixed": partial(twins("groups.is_mixed"), CORRECT_PG),
    "groups.is_zero_variance": several(
        *[partial(twins("groups.is_zero_variance"), x) for x in (REWARDS_PG, SOME_UNUSABLE_PG)]
    ),
    "kl.kl_estimate": several(
        *[
            partial(twins("kl.kl_estimate", estimator=k), LOGPROBS_T, [held])
            for k, held in product(("k1", "k2", "k3"), (HELD_T, LOGPROBS_T, FAR_T))
        ]
    ),
    "losses.policy_loss": check_policy_loss,
    "losses.likelihood_loss": check_likelihood_loss,
    "objectives.clipped_objective": several(
        *[
            partial(
                twins("objectives.clipped_objective", clip_low=0.1, clip_high=0.2, dual_clip=d), RATIO_T, [ADVANTAGES_T]
            )
            for d in (None, 1.3)
        ]
    ),
    "objectives.is_clipped": several(
        *[
            partial(twins("objectives.is_clipped", clip_low=0.1, clip_high=0.2, dual_clip=d), RATIO_T, [ADVANTAGES_T])
            for d in (None, 1.3)
        ]
    ),
    "objectives.cispo_objective": partial(
        twins("objectives.cispo_objective", clip_high=0.1), LOGPROBS_T, [RATIO_T, ADVANTAGES_T]
    ),
    "objectives.policy_gradient_objective": partial(
        twins("objectives.policy_gradient_objective"), LOGPROBS_T, [ADVANTAGES_T]
    ),
    "ratios.token_ratio": several(*[partial(twins("ratios.token_ratio"), LOGPROBS_T, [x]) for x in (OLD_T, FAR_T)]),
    "ratios.sequence_ratio": check_sequence_ratio,
    "rewards.overlong_punishment": partial(
        twins("rewards.overlong_punishment", max_length=10, buffer=4), np.arange(13)
    ),
}


def functions(package: str) -> set[str]:
    """``module.function`` of every public function defined in a package."""
    found = set()
    for path in (PACKAGE / package).glob("[!_]*.py"):
        module = import_module(f"grpo_zero.{package}.{path.stem}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                found.add(f"{path.stem}.{name}")
    return found


def test_no_torch_function_is_without_its_numpy_twin_and_a_case() -> None:
    assert functions("algorithms") <= functions("reference")
    assert functions("algorithms") == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_both_sides_agree(name: str) -> None:
    CASES[name]()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_from_rewards_to_slopes(preset: str) -> None:
    """Advantages and loss together, with the preset's own parts."""
    algorithm = AlgorithmConfig(**with_preset({"preset": preset}))
    parts = {"baseline": algorithm.baseline, "scale": algorithm.scale, "std": algorithm.std}
    judged_PG = import_module("grpo_zero.reference.advantages").advantages(REWARDS_PG, **parts)
    same(import_module("grpo_zero.algorithms.advantages").advantages(torch.from_numpy(REWARDS_PG), **parts), judged_PG)
    assert (np.abs(judged_PG) > 0).any()
    check_loss_of(algorithm)


def test_no_two_presets_are_the_same() -> None:
    built = {name: replace(AlgorithmConfig(**with_preset({"preset": name})), preset="") for name in PRESETS}
    for (first, one), (second, other) in product(built.items(), repeat=2):
        assert first == second or one != other, f"{first} and {second} are the same algorithm"


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_and_entropy(temperature: float) -> None:
    rng = np.random.default_rng(3)
    hidden_CE, head_VE, targets_C = rng.normal(size=(4, 8)), rng.normal(size=(11, 8)), np.array([0, 10, 3, 3])
    logits_CV = hidden_CE @ head_VE.T
    leaf = torch.tensor(hidden_CE, dtype=torch.float32, requires_grad=True)
    logprobs_C, entropy_C = dense_logprobs(
        leaf, torch.tensor(head_VE, dtype=torch.float32), torch.from_numpy(targets_C), temperature, None
    )
    kwargs = {"rtol": 1e-4, "atol": 1e-5}  # the head computes in float32
    np.testing.assert_allclose(logprobs_C.detach(), softmax.token_logprobs(logits_CV, targets_C, temperature), **kwargs)
    np.testing.assert_allclose(entropy_C, softmax.entropy(logits_CV / temperature), **kwargs)
    logprobs_C.sum().backward()
    slope_CV = softmax.token_logprobs_gradient(logits_CV, targets_C, np.ones(4), temperature)
    np.testing.assert_allclose(leaf.grad, slope_CV @ head_VE, **kwargs)
