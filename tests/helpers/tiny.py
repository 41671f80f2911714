"""Random decoders of the three families, small enough for a thousand forwards a second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.spec import Llama3RopeScaling, ModelSpec
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy

SHARED = {"num_layers": 2, "width": 32, "ffn_width": 48, "num_heads": 4, "vocab_size": 61, "context": 128}
SWITCHES_OFF = {"qkv_bias": False, "output_bias": False, "mlp_bias": False, "qk_norm": False, "norm_eps": 1e-6}
ROPE = {"rope_theta": 1e4, "rope_scaling": None}
SPECS = {
    family: ModelSpec(family=family, **(SHARED | SWITCHES_OFF | ROPE | own))
    for family, own in {
        "qwen2": {"qkv_bias": True, "num_kv_heads": 2, "head_size": 8, "tied_head": True},
        "qwen3": {"qk_norm": True, "num_kv_heads": 1, "head_size": 16, "tied_head": True},
        "llama": {
            "num_kv_heads": 4,
            "head_size": 8,
            "tied_head": False,
            "rope_theta": 1e3,
            "rope_scaling": Llama3RopeScaling(
                factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=16
            ),
        },
    }.items()
}
"""Tied with biases; one key head and heads wider than the model; untied with stretched RoPE."""


TINY_LLAMA_CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
"""What a config.json holds, for tests of reading and writing files."""


def tiny_decoder(family: str, seed: int = 0) -> Decoder:
    """Random weights, far enough from zero that attention, norms and biases all matter."""
    decoder = Decoder(SPECS[family])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if name.endswith("norm.weight") else 0.3 * noise)
    return decoder


def token_mask(without: Sequence[int], vocab_size: int = SHARED["vocab_size"]) -> Tensor:
    """bool ``[V]``, False at the ids ``without`` a token."""
    mask_V = torch.ones(vocab_size, dtype=torch.bool)
    mask_V[list(without)] = False
    return mask_V


def policy_of(decoder: Decoder, has_token_V: Tensor | None = None) -> Policy:
    """A policy for code that needs no text: without tokenizer, template and source."""
    return Policy(decoder, None, None, None, has_token_V)  # type: ignore[arg-type]


def random_rows(seed: int, group_sizes: Sequence[int], vocab_size: int = SHARED["vocab_size"]) -> list[TrainRow]:
    """Rows of unequal lengths, every advantage different from 0, completions of 1 to 9 tokens.

    With an odd seed all prompts begin alike.
    """
    rng = np.random.default_rng(seed)
    beginning = [3, 1, 2] if seed % 2 else []
    rows = []
    for group, size in enumerate(group_sizes):
        prompt = beginning + rng.integers(vocab_size, size=rng.integers(1, 8)).tolist()
        for _ in range(size):
            completion = rng.integers(vocab_size, size=rng.integers(1, 10)).tolist()
            rows.append(TrainRow(group, prompt, completion, float(rng.normal()), [-1.0] * len(completion)))
    return rows


def padded_logprobs(
    decoder: Decoder, rows: Sequence[TrainRow], temperature: float = 1.0, has_token_V: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The plain way: rows with their own prompt each, padded on the right to one length, all logits, one mask.

    Returns:
        ``(logprobs_BT, mask_BT)``: log-prob of each next token, and which of them are completion tokens (from lengths).
    """
    length = max(len(row.prompt_ids) + len(row.completion_ids) for row in rows)
    tokens_BT = torch.zeros(len(rows), length, dtype=torch.int64)
    mask_BT = torch.zeros(len(rows), length - 1, dtype=torch.bool)
    for b, row in enumerate(rows):
        start, stop = len(row.prompt_ids), len(row.prompt_ids) + len(row.completion_ids)
        tokens_BT[b, :stop] = torch.tensor([*row.prompt_ids, *row.completion_ids])
        mask_BT[b, start - 1 : stop - 1] = True
    hidden = [decoder(tokens_T, torch.arange(length), DenseCausal()) for tokens_T in tokens_BT]
    logits_BTV = decoder.logits(torch.stack(hidden))[:, :-1] / temperature
    if has_token_V is not None:
        logits_BTV = logits_BTV.masked_fill(~has_token_V, -torch.inf)
    logprobs_BT = logits_BTV.log_softmax(-1).gather(-1, tokens_BT[:, 1:, None])[..., 0]
    return logprobs_BT, mask_BT


class GradientCatcher:
    """In the optimizer's place: keeps the gradients that a step would have used, moves nothing."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.num_steps = 0
        self.divisor = 1.0
        self.gradients: dict[str, Tensor] = {}

    def begin(self) -> None:
        self.zero_grad()

    def gather(self) -> None:
        pass

    def clip(self, max_norm: float) -> float:
        clipper = AdamW(self.decoder.named_parameters())
        norm = clipper.clip(max_norm)
        self.divisor = clipper.divisor
        return norm

    def step(self, learning_rate: float) -> None:
        self.num_steps += 1
        self.gradients = {n: p.grad / self.divisor for n, p in self.decoder.named_parameters() if p.grad is not None}

    def zero_grad(self) -> None:
        self.decoder.zero_grad()
