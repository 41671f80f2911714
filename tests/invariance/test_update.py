"""The packed update against plain rows: one gradient, however the rows are packed, split, skipped or recomputed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.tiny import GradientCatcher, padded_logprobs, policy_of, random_rows, tiny_decoder, token_mask
from torch import Tensor

from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.update import update

ROWS = random_rows(5, [3, 2, 1, 4])
SPLITS = {
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


def num_tokens(rows: list[TrainRow]) -> int:
    return sum(len(row.completion_ids) for row in rows)


def packed(
    decoder: Decoder,
    rows: list[TrainRow],
    temperature: float = 1.0,
    has_token_V: Tensor | None = None,
    **settings: int,
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Facts and gradients of our update."""
    catcher = GradientCatcher(decoder)
    config = TrainingConfig(max_grad_norm=1e9, **settings)
    facts = update(
        policy_of(decoder, has_token_V),
        catcher,
        rows,
        num_trained_tokens=num_tokens(rows),
        learning_rate=1.0,
        config=config,
        temperature=temperature,
    )
    assert catcher.num_steps == 1
    return facts, catcher.gradients


def plain(
    decoder: Decoder, rows: list[TrainRow], temperature: float = 1.0, has_token_V: Tensor | None = None
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of unshared, padded rows with dense logits and a mask."""
    decoder.zero_grad()
    logprobs_BT, mask_BT = padded_logprobs(decoder, rows, temperature, has_token_V)
    advantages_B1 = torch.tensor([[row.advantage] for row in rows])
    loss = -torch.where(mask_BT, logprobs_BT * advantages_B1, 0.0).sum() / mask_BT.sum()
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in decoder.named_parameters()}
    decoder.zero_grad()
    return loss.item(), gradients


def assert_same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Equal but for float32 rounding, measured against each tensor's largest entry."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-4, atol=2e-5 * scale, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("has_token_V", [None, "masked"])
def test_equals_plain_padded_rows_with_dense_logits(decoder: Decoder, temperature: float, has_token_V) -> None:
    rows = ROWS
    if has_token_V is not None:
        used = {token for row in rows for token in row.completion_ids}
        has_token_V = token_mask(without=sorted(set(range(61)) - used)[::2])
        assert not has_token_V.all()
    loss, expected = plain(decoder, rows, temperature, has_token_V)
    facts, gradients = packed(decoder, rows, temperature, has_token_V)
    assert_same_gradients(gradients, expected)
    assert facts["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    norm = torch.cat([g.flatten() for g in expected.values()]).norm().item()
    assert facts["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert facts["forwarded_tokens"] == num_tokens(rows)


@pytest.mark.parametrize("settings", SPLITS.values(), ids=SPLITS)
def test_does_not_depend_on_the_micro_batches(decoder: Decoder, settings: dict[str, int]) -> None:
    """L01, L02, L16: gradient, loss, norm and entropy are the whole update's."""
    expected_facts, expected = packed(decoder, ROWS)
    facts, gradients = packed(decoder, ROWS, **settings)
    assert_same_gradients(gradients, expected)
    assert facts == pytest.approx(expected_facts, rel=1e-4, abs=1e-6)


def test_recomputing_activations_changes_nothing(decoder: Decoder) -> None:
    _, expected = packed(decoder, ROWS)
    decoder.recompute_activations = True
    _, gradients = packed(decoder, ROWS)
    assert_same_gradients(gradients, expected)


def test_groups_without_variance_are_skipped_and_still_counted(decoder: Decoder, monkeypatch) -> None:
    """Their gradient is exactly zero; their tokens stay in the normaliser."""
    rows = [replace(row, advantage=0.0) if row.group in (0, 2) else row for row in ROWS]
    loss, expected = plain(decoder, rows)
    facts, gradients = packed(decoder, rows)
    assert_same_gradients(gradients, expected)
    assert facts["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert facts["forwarded_tokens"] == num_tokens([row for row in rows if row.advantage])


def test_skipped_tokens_are_never_forwarded(decoder: Decoder) -> None:
    rows = [replace(row, advantage=0.0) if row.group != 1 else row for row in ROWS]
    seen: list[int] = []
    decoder.embedding.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    packed(decoder, rows)
    kept = [row for row in rows if row.group == 1]
    assert sum(seen) == len(kept[0].prompt_ids) + sum(len(row.completion_ids) - 1 for row in kept)


def test_the_prompt_is_forwarded_once_a_group(decoder: Decoder) -> None:
    seen: list[int] = []
    decoder.embedding.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    packed(decoder, ROWS)
    prompts = {row.group: len(row.prompt_ids) for row in ROWS}
    assert sum(seen) == sum(prompts.values()) + sum(len(row.completion_ids) - 1 for row in ROWS)


def test_empty_completions_change_nothing(decoder: Decoder) -> None:
    """L08."""
    _, expected = packed(decoder, ROWS)
    empty = TrainRow(ROWS[0].group, ROWS[0].prompt_ids, [], 3.0)
    _, gradients = packed(decoder, [empty, *ROWS[:3], TrainRow(99, [1], [], 1.0), *ROWS[3:]])
    assert_same_gradients(gradients, expected)


def test_the_normaliser_is_the_callers(decoder: Decoder) -> None:
    """L04, L05: twice the tokens in the normaliser, half the gradient, exactly."""
    config = TrainingConfig(max_grad_norm=1e9)
    found = []
    for count in (32, 64):
        catcher = GradientCatcher(decoder)
        update(policy_of(decoder), catcher, ROWS, num_trained_tokens=count, learning_rate=1.0, config=config)
        found.append(catcher.gradients["norm.weight"])
    torch.testing.assert_close(found[0], 2 * found[1])


@pytest.mark.parametrize("rows", [[], [replace(row, advantage=0.0) for row in ROWS], [TrainRow(0, [1], [], 1.0)]])
def test_nothing_to_learn_leaves_weights_and_optimizer_untouched(rows: list[TrainRow]) -> None:
    """L07, A01: no step, no decay, no NaN."""
    decoder = tiny_decoder("qwen2")
    optimizer = AdamW(decoder.named_parameters(), weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in decoder.named_parameters()}
    tokens = num_tokens(rows)
    facts = update(
        policy_of(decoder), optimizer, rows, num_trained_tokens=tokens, learning_rate=1.0, config=TrainingConfig()
    )
    assert facts == {"loss": 0.0, "grad_norm": 0.0, "forwarded_tokens": 0}
    assert optimizer.num_steps == 0
    for name, parameter in decoder.named_parameters():
        assert torch.equal(parameter, before[name])


def test_clipping_scales_all_gradients_to_the_norm(decoder: Decoder) -> None:
    _, expected = packed(decoder, ROWS)
    catcher = GradientCatcher(decoder)
    config = TrainingConfig(max_grad_norm=0.01)
    facts = update(
        policy_of(decoder), catcher, ROWS, num_trained_tokens=num_tokens(ROWS), learning_rate=1.0, config=config
    )
    norm = torch.cat([g.flatten() for g in expected.values()]).norm().item()
    assert facts["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert_same_gradients(catcher.gradients, {name: g * (0.01 / norm) for name, g in expected.items()})
