"""The packed update against plain rows: one gradient for every algorithm, however the rows are packed, split or skipped.

The judge forwards every row alone with its own prompt, takes dense log-probs, and lets the NumPy reference say what each of
them is worth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny import GradientCatcher, padded_logprobs, policy_of, random_rows, tiny_decoder, token_mask
from torch import Tensor

from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.presets import PRESETS, AlgorithmConfig, with_preset
from grpo_zero.reference.losses import policy_loss
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import DemonstrationLoss, GRPOLoss
from grpo_zero.train.update import update

MAX_LENGTH = 9
ROWS = random_rows(5, [3, 2, 1, 4])
SPLITS: dict[str, dict[str, int]] = {
    "everything at once": {},
    "one row at a time": {"micro_batch_size": 1},
    "two rows": {"micro_batch_size": 2},
    "three rows": {"micro_batch_size": 3},
    "12 tokens": {"micro_batch_tokens": 12},
    "no token budget to speak of": {"micro_batch_tokens": 1},
    "25 tokens, 3 rows, head in chunks of 2": {
        "micro_batch_tokens": 25,
        "micro_batch_size": 3,
        "head_chunk_tokens": 2,
    },
}
PARTS = {
    "dual clip": {"clip_low": 0.05, "clip_high": 0.05, "dual_clip": 1.1},
    **{f"{k} in the loss": {"kl_weight": 0.3, "kl_estimator": k} for k in ("k1", "k2", "k3")},
    "cispo, sequence ratio": {
        "objective": "cispo",
        "ratio_level": "sequence",
        "clip_high": 0.02,
        "average": "constant",
    },
}
ALGORITHMS = {
    **{name: AlgorithmConfig(**with_preset({"preset": name})) for name in PRESETS},
    **{name: AlgorithmConfig(**parts) for name, parts in PARTS.items()},
}
"""Every preset, and parts that no preset has."""
DEFAULT = ALGORITHMS["grpo_zero"]


def off_policy(decoder: Decoder, rows: list[TrainRow], seed: int = 0) -> list[TrainRow]:
    """Rows whose old and reference log-probs are a little off the policy's, on both sides of the clip ranges."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        logprobs_BT, mask_BT = padded_logprobs(decoder, rows)
    out = []
    for row, logprobs_T, mask_T in zip(rows, logprobs_BT, mask_BT, strict=True):
        own = logprobs_T[mask_T].numpy()
        old, held = own + rng.normal(0, 0.3, len(own)), own + rng.normal(0, 0.3, len(own))
        out.append(replace(row, sampled_logprobs=old.tolist(), reference_logprobs=held.tolist()))
    return out


def packed(
    decoder: Decoder,
    rows: list[TrainRow],
    algorithm: AlgorithmConfig = DEFAULT,
    *,
    is_on_policy: bool = True,
    temperature: float = 1.0,
    has_token_V: Tensor | None = None,
    **settings: int,
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Facts and gradients of our update."""
    catcher = GradientCatcher(decoder)
    facts = update(
        policy_of(decoder, has_token_V),
        catcher,
        weigh(rows, algorithm.average, MAX_LENGTH),
        GRPOLoss(algorithm=algorithm, is_on_policy=is_on_policy),
        learning_rate=1.0,
        config=TrainingConfig(max_grad_norm=1e9, **settings),
        temperature=temperature,
    )
    assert catcher.num_steps == 1
    return facts, catcher.gradients


def plain(
    decoder: Decoder,
    rows: list[TrainRow],
    algorithm: AlgorithmConfig = DEFAULT,
    *,
    is_on_policy: bool = True,
    temperature: float = 1.0,
    has_token_V: Tensor | None = None,
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of unshared, padded rows with dense logits and a mask; the loss and its slope are the reference's."""
    decoder.zero_grad()
    logprobs_BT, mask_BT = padded_logprobs(decoder, rows, temperature, has_token_V)
    own = [x[mask].detach().double().numpy() for x, mask in zip(logprobs_BT, mask_BT, strict=True)]
    held = [np.array(row.reference_logprobs) for row in rows] if rows[0].reference_logprobs else None
    loss, slopes = policy_loss(
        own,
        own if is_on_policy else [np.array(row.sampled_logprobs) for row in rows],
        np.array([row.advantage for row in rows]),
        max_length=MAX_LENGTH,
        reference_logprobs=held,
        **reference_settings(algorithm),
    )
    slope_BT = torch.zeros_like(logprobs_BT)
    slope_BT[mask_BT] = torch.from_numpy(np.concatenate(slopes)).float()
    logprobs_BT.backward(slope_BT)
    gradients = {name: p.grad.clone() for name, p in decoder.named_parameters()}
    decoder.zero_grad()
    return loss, gradients


def reference_settings(algorithm: AlgorithmConfig) -> dict[str, Any]:
    names = ("objective", "ratio_level", "clip_low", "clip_high", "dual_clip", "average", "kl_weight", "kl_estimator")
    return {name: getattr(algorithm, name) for name in names}


def assert_same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Equal but for float32 rounding, measured against each tensor's largest entry."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-4, atol=2e-5 * scale, msg=lambda m, n=name: f"{n}: {m}"
        )


def num_tokens(rows: list[TrainRow]) -> int:
    return sum(len(row.completion_ids) for row in rows)


@pytest.mark.parametrize("is_on_policy", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_every_algorithm_is_independent_of_micro_batches_packing_and_prompt_sharing(
    algorithm: AlgorithmConfig, is_on_policy: bool
) -> None:
    """L01, L02, L16: gradient, loss, norm and every fact are the whole update's."""
    decoder = tiny_decoder("qwen2")
    rows = off_policy(decoder, ROWS)
    if not algorithm.kl_weight:
        rows = [replace(row, reference_logprobs=None) for row in rows]
    loss, expected = plain(decoder, rows, algorithm, is_on_policy=is_on_policy)
    whole, _ = packed(decoder, rows, algorithm, is_on_policy=is_on_policy)
    if not is_on_policy and algorithm.objective == "clipped":
        assert whole["clip_fraction_low"] > 0 < whole["clip_fraction_high"], "the range is left on both sides"
    unshared = [replace(row, group=index) for index, row in enumerate(rows)]
    for sharing in (rows, unshared):
        for settings in SPLITS.values():
            facts, gradients = packed(decoder, sharing, algorithm, is_on_policy=is_on_policy, **settings)
            assert_same_gradients(gradients, expected)
            assert facts["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
            assert facts == pytest.approx(whole, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_on_policy_the_ratio_is_one_and_nothing_is_clipped(algorithm: AlgorithmConfig) -> None:
    """Whatever the sampler reported; and without a KL the gradient is the plain policy gradient (L11)."""
    decoder = tiny_decoder("qwen2")
    rows = off_policy(decoder, ROWS)
    facts, gradients = packed(decoder, rows, replace(algorithm, kl_weight=0.0))
    assert facts["kl_old"] == 0.0
    assert facts.get("clip_fraction_low", 0.0) == facts.get("clip_fraction_high", 0.0) == 0.0
    simple = replace(
        algorithm, objective="policy_gradient", ratio_level="token", dual_clip=None, scale="none", kl_weight=0.0
    )
    _, expected = plain(decoder, rows, simple)
    assert_same_gradients(gradients, expected)
    assert any(gradient.abs().max() > 1e-3 for gradient in gradients.values())


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("has_token_V", [None, "masked"])
def test_every_family_equals_plain_padded_rows_with_dense_logits(
    decoder: Decoder, temperature: float, has_token_V
) -> None:
    """N01: the log-probs are those of the tempered distribution."""
    rows = ROWS
    if has_token_V is not None:
        used = {token for row in rows for token in row.completion_ids}
        has_token_V = token_mask(without=sorted(set(range(61)) - used)[::2])
        assert not has_token_V.all()
    loss, expected = plain(decoder, rows, temperature=temperature, has_token_V=has_token_V)
    facts, gradients = packed(decoder, rows, temperature=temperature, has_token_V=has_token_V)
    assert_same_gradients(gradients, expected)
    assert facts["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    norm = torch.cat([g.flatten() for g in expected.values()]).norm().item()
    assert facts["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert facts["forwarded_tokens"] == num_tokens(rows)


def test_recomputing_activations_changes_nothing(decoder: Decoder) -> None:
    _, expected = packed(decoder, ROWS)
    decoder.recompute_activations("full")
    _, gradients = packed(decoder, ROWS)
    assert_same_gradients(gradients, expected)


def test_a_prompt_is_forwarded_once_a_group_and_its_beginning_once(decoder: Decoder) -> None:
    seen: list[int] = []
    decoder.embedding.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    packed(decoder, ROWS)
    prompts = {tuple(row.prompt_ids) for row in ROWS}
    beginnings = {ids[:n] for ids in prompts for n in range(1, len(ids)) if len({other[:n] for other in prompts}) == 1}
    own = sum(len(ids) - len(beginnings) for ids in prompts)
    assert sum(seen) == len(beginnings) + own + sum(len(row.completion_ids) - 1 for row in ROWS)


@pytest.mark.parametrize("average", ["sequence", "token", "constant"])
def test_empty_completions_change_nothing(decoder: Decoder, average: str) -> None:
    """L08."""
    algorithm = AlgorithmConfig(average=average)
    _, expected = packed(decoder, ROWS, algorithm)
    empty = TrainRow(ROWS[0].group, ROWS[0].prompt_ids, [], 3.0)
    _, gradients = packed(decoder, [empty, *ROWS[:3], TrainRow(99, [1], [], 1.0), *ROWS[3:]], algorithm)
    assert_same_gradients(gradients, expected)


def test_a_kl_that_is_in_the_reward_is_not_in_the_loss(decoder: Decoder) -> None:
    rows = off_policy(decoder, ROWS)
    facts, gradients = packed(decoder, rows, AlgorithmConfig(kl_weight=5.0, kl_in="reward", scale="none"))
    loss, expected = plain(decoder, rows, AlgorithmConfig(scale="none"))
    assert facts["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert facts["kl_reference"] > 0
    assert_same_gradients(gradients, expected)


def test_a_token_far_from_the_sampler_makes_no_infinity(decoder: Decoder) -> None:
    """N05, N06: log-ratios of 200 and -200, in the loss and in the KL: value and gradient stay finite."""
    for sign in (1.0, -1.0):
        far = [replace(row, sampled_logprobs=[sign * 200.0] * len(row.completion_ids)) for row in ROWS]
        far = [replace(row, reference_logprobs=row.sampled_logprobs) for row in far]
        for algorithm in ALGORITHMS.values():
            facts, gradients = packed(decoder, far, algorithm, is_on_policy=False)
            assert np.isfinite(list(facts.values())).all()
            assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("rows", [[], [TrainRow(0, [1], [], 1.0)]])
def test_nothing_to_learn_leaves_weights_and_optimizer_untouched(rows: list[TrainRow]) -> None:
    """L07, A01: no step, no decay, no NaN."""
    decoder = tiny_decoder("qwen2")
    optimizer = AdamW(decoder.named_parameters(), weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in decoder.named_parameters()}
    facts = update(policy_of(decoder), optimizer, rows, DemonstrationLoss(), learning_rate=1.0, config=TrainingConfig())
    assert facts == {"loss": 0.0, "grad_norm": 0.0, "forwarded_tokens": 0}
    assert optimizer.num_steps == 0
    for name, parameter in decoder.named_parameters():
        assert torch.equal(parameter, before[name])


def test_clipping_scales_all_gradients_to_the_norm(decoder: Decoder) -> None:
    _, expected = packed(decoder, ROWS)
    catcher = GradientCatcher(decoder)
    facts = update(
        policy_of(decoder),
        catcher,
        weigh(ROWS, "token", MAX_LENGTH),
        GRPOLoss(algorithm=DEFAULT, is_on_policy=True),
        learning_rate=1.0,
        config=TrainingConfig(max_grad_norm=0.01),
    )
    norm = torch.cat([g.flatten() for g in expected.values()]).norm().item()
    assert facts["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert_same_gradients(catcher.gradients, {name: g * (0.01 / norm) for name, g in expected.items()})


def test_equal_updates_have_equal_gradients_bit_for_bit_with_several_threads(decoder: Decoder) -> None:
    """Many completions share a prompt's rows, whose gradients must add up in the same order every time."""
    rows = random_rows(3, [200, 200])
    num_threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        _, expected = packed(decoder, rows)
        for _ in range(5):
            _, gradients = packed(decoder, rows)
            assert [name for name, gradient in gradients.items() if not torch.equal(gradient, expected[name])] == []
    finally:
        torch.set_num_threads(num_threads)
