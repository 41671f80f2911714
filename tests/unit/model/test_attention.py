"""Packed attention against the dense mask, and the dense mask against the rule in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from grpo_zero.model.attention import (
    DenseCausal,
    DenseMask,
    GroupLayout,
    PackedGroups,
    dense_mask,
    packed_positions,
    shared_length,
)

CPU = torch.device("cpu")
LAYOUTS = {
    "one prompt alone": [GroupLayout(4, ())],
    "one token": [GroupLayout(1, ())],
    "one group": [GroupLayout(3, (2, 4))],
    "completions of length 0": [GroupLayout(3, (0, 2, 0, 1, 0))],
    "only completions of length 0": [GroupLayout(2, (0, 0)), GroupLayout(4, ())],
    "several groups": [GroupLayout(5, (3, 1)), GroupLayout(1, (2,)), GroupLayout(2, (4, 4, 1)), GroupLayout(6, ())],
    "long completion, short prompt": [GroupLayout(1, (9,)), GroupLayout(7, (1, 2))],
}


SHARED = [0, 1, 5]


def owners(groups: list[GroupLayout], shared: int) -> list[tuple[int, int, int]]:
    """(group or -1 for all, completion or -1 for the prompt, position) of each token of the stream."""
    out = [(-1, -1, i) for i in range(shared)]
    for g, group in enumerate(groups):
        prompt_end = shared + group.prompt_length
        out += [(g, -1, i) for i in range(shared, prompt_end)]
        for c, length in enumerate(group.completion_lengths):
            out += [(g, c, prompt_end + i) for i in range(length)]
    return out


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("groups", LAYOUTS.values(), ids=LAYOUTS)
def test_mask_and_positions_follow_the_rule(groups: list[GroupLayout], shared: int) -> None:
    tokens = owners(groups, shared)
    assert packed_positions(groups, shared).tolist() == [position for _, _, position in tokens]
    expected = [
        [g2 in (-1, g) and p2 <= p and (c2 in (-1, c)) and (c != -1 or c2 == -1) for g2, c2, p2 in tokens]
        for g, c, p in tokens
    ]
    assert np.array_equal(dense_mask(groups, shared), np.array(expected))


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ([[1, 2, 3]], 0),
        ([[1, 2, 3], [1, 2, 4, 5]], 2),
        ([[1, 2, 3], [1, 2, 3]], 2),
        ([[1, 2, 3, 4], [1, 2], [1, 2, 3]], 1),
        ([(1, 2, 9), [1, 2, 5], [1, 3, 0]], 1),
        ([[1, 2], [2, 2]], 0),
        ([[1], [1]], 0),
    ],
)
def test_what_prompts_begin_with(prompts: list[Sequence[int]], expected: int) -> None:
    """The last token of each stays its own."""
    assert shared_length(prompts) == expected


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 2), (4, 4), (6, 1)])
@pytest.mark.parametrize("groups", LAYOUTS.values(), ids=LAYOUTS)
def test_packed_equals_dense_mask(groups: list[GroupLayout], num_heads: int, num_kv_heads: int, shared: int) -> None:
    """Under autograd, and with the backward that keeps less."""
    torch.manual_seed(0)
    num_tokens, head_size = shared + sum(group.num_tokens for group in groups), 8
    shapes = [(num_tokens, heads, head_size) for heads in (num_heads, num_kv_heads, num_kv_heads)]
    values = [torch.randn(shape) for shape in shapes]
    weight_THD = torch.randn(shapes[0])

    def run(attend: object) -> tuple[torch.Tensor, list[torch.Tensor]]:
        q, k, v = (value.clone().requires_grad_() for value in values)
        out = attend(0, q, k, v)
        (out * weight_THD).sum().backward()
        return out.detach(), [q.grad, k.grad, v.grad]

    dense, dense_grads = run(DenseMask(torch.from_numpy(dense_mask(groups, shared))))
    compact, compact_grads = run(PackedGroups(groups, CPU, shared, is_compact=True))
    packed, packed_grads = run(PackedGroups(groups, CPU, shared, is_compact=False))
    torch.testing.assert_close(packed, dense, rtol=1e-5, atol=1e-6)
    assert torch.equal(compact, packed)
    for compact_grad, packed_grad, dense_grad in zip(compact_grads, packed_grads, dense_grads, strict=True):
        torch.testing.assert_close(packed_grad, dense_grad, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(compact_grad, dense_grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", LAYOUTS.values(), ids=LAYOUTS)
def test_the_compact_backward_in_bf16_and_of_queries_alone(groups: list[GroupLayout]) -> None:
    torch.manual_seed(0)
    num_tokens = sum(group.num_tokens for group in groups)
    wide = [torch.randn(num_tokens, heads, 8) for heads in (4, 2, 2)]
    weight_THD = torch.randn(num_tokens, 4, 8)
    found = []
    for dtype, trained in ((torch.float32, 3), (torch.bfloat16, 3), (torch.bfloat16, 1)):
        q, k, v = inputs = [x.to(dtype, copy=True).requires_grad_(i < trained) for i, x in enumerate(wide)]
        out = PackedGroups(groups, CPU, is_compact=True)(0, q, k, v)
        (out * weight_THD).sum().backward()
        found.append([x.grad for x in inputs])
    for expected, half in zip(found[0], found[1], strict=True):
        torch.testing.assert_close(half.float(), expected, rtol=5e-2, atol=5e-2)
    assert torch.equal(found[2][0], found[1][0])
    assert found[2][1:] == [None, None]


def test_siblings_and_other_groups_are_invisible() -> None:
    torch.manual_seed(1)
    groups = [GroupLayout(3, (2, 4)), GroupLayout(2, (3,))]
    attend = PackedGroups(groups, CPU)
    q, k, v = (torch.randn(14, 2, 8) for _ in range(3))
    before = attend(0, q, k, v)
    k[5:9], v[5:9] = 100.0, -100.0  # the second completion of the first group
    changed = (attend(0, q, k, v) != before).any(-1).any(-1)
    assert changed.nonzero()[:, 0].tolist() == [5, 6, 7, 8]


def test_plain_causal_is_one_group_without_completions() -> None:
    torch.manual_seed(2)
    q, k, v = torch.randn(6, 4, 8), torch.randn(6, 2, 8), torch.randn(6, 2, 8)
    packed = PackedGroups([GroupLayout(6, ())], CPU)
    torch.testing.assert_close(DenseCausal()(0, q, k, v), packed(0, q, k, v), rtol=1e-5, atol=1e-6)
