"""LoRA on the shared decoder: a no-op at first, exact when merged, and what is frozen stays."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.tiny import tiny_decoder

from grpo_zero.config import LORA_TARGETS
from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.lora import MergedState, adapter_tensors, add_adapters

ALL = frozenset(LORA_TARGETS)
TOKENS_T = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])


def logits(decoder: Decoder) -> torch.Tensor:
    return decoder.logits(decoder(TOKENS_T, torch.arange(len(TOKENS_T)), DenseCausal()))


def trained(family: str, targets: frozenset[str] = ALL, **options) -> Decoder:
    """With ``B`` as if something had been learned."""
    decoder = tiny_decoder(family)
    add_adapters(decoder, rank=3, alpha=6.0, targets=targets, **options)
    generator = torch.Generator().manual_seed(7)
    for name, tensor in adapter_tensors(decoder).items():
        if "lora_B" in name:
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)
    return decoder


@pytest.mark.parametrize("mode", ["grad", "no grad"])
def test_new_adapters_change_nothing(decoder: Decoder, mode: str) -> None:
    with torch.set_grad_enabled(mode == "grad"):
        before = logits(decoder)
        add_adapters(decoder, rank=2, alpha=4.0, targets=ALL)
        torch.testing.assert_close(logits(decoder), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "targets", [ALL, frozenset({"v_proj"}), frozenset({"q_proj", "up_proj"}), frozenset({"down_proj"})]
)
@pytest.mark.parametrize("rslora", [False, True])
def test_merged_equals_unmerged(family: str, targets: frozenset[str], rslora: bool) -> None:
    """P08: the scale is applied once."""
    decoder = trained(family, targets, rslora=rslora)
    plain = tiny_decoder(family)
    with torch.no_grad():
        assert not torch.allclose(logits(decoder), logits(plain), atol=1e-3)
        plain.load_state_dict(MergedState(decoder))
        torch.testing.assert_close(logits(plain), logits(decoder), rtol=1e-4, atol=1e-4)


def test_scale() -> None:
    pairs = [trained("qwen2", rslora=rslora) for rslora in (False, True)]
    scales = [pair.layers[0].attention.qkv.adapter.scale for pair in pairs]
    assert scales == [2.0, 6.0 / math.sqrt(3)]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_gradients_reach_adapters_alone_and_are_those_of_autograd(family: str, recompute: str) -> None:
    decoder = trained(family)
    decoder.recompute_activations(recompute)
    weights_TV = torch.randn(len(TOKENS_T), 61, generator=torch.Generator().manual_seed(2))

    def loss() -> torch.Tensor:
        return (logits(decoder) * weights_TV).sum()

    value = loss()
    value.backward()
    learned = {name: p for name, p in decoder.named_parameters() if p.grad is not None}
    assert learned
    assert all(".adapter." in name for name in learned)
    assert all(p.requires_grad == (".adapter." in name) for name, p in decoder.named_parameters())
    for name, parameter in learned.items():
        step = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
        expected = (parameter.grad * step).sum().item()
        with torch.no_grad():
            parameter += 1e-3 * step
            above = loss().item()
            parameter -= 2e-3 * step
            below = loss().item()
            parameter += 1e-3 * step
        assert (above - below) / 2e-3 == pytest.approx(expected, rel=0.03, abs=0.5), name


def test_what_is_not_a_target_has_no_pair() -> None:
    names = adapter_tensors(trained("qwen2", frozenset({"q_proj", "v_proj"})))
    assert set(names) == {
        f"base_model.model.model.layers.{layer}.self_attn.{part}.lora_{matrix}.weight"
        for layer in range(2)
        for part in ("q_proj", "v_proj")
        for matrix in "AB"
    }


def test_dropout_is_for_training_alone() -> None:
    """T10: and computing a block again draws the same numbers."""
    decoder = trained("qwen2", dropout=0.5)
    torch.manual_seed(0)
    assert not torch.equal(logits(decoder), logits(decoder))
    gradients = []
    for mode in ("none", "full"):
        decoder.recompute_activations(mode)
        decoder.zero_grad()
        torch.manual_seed(1)
        logits(decoder).square().sum().backward()
        gradients.append([p.grad.clone() for p in decoder.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    decoder.eval()
    assert torch.equal(logits(decoder), logits(decoder))
