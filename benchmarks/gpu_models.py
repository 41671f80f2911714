"""Random models of the sizes the GPU suite speaks of, and random prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from grpo_zero.model.decoder import Decoder
from grpo_zero.model.spec import ModelSpec
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.policy import Policy
from grpo_zero.types import Completion


def qwen25(
    num_layers: int, width: int, ffn_width: int, heads: tuple[int, int], head_size: int, **own: object
) -> ModelSpec:
    """A spec with what all Qwen2.5 models share (their config.json)."""
    shared = {
        "family": "qwen2",
        "vocab_size": 151936,
        "context": 32768,
        "tied_head": True,
        "qkv_bias": True,
        "output_bias": False,
        "mlp_bias": False,
        "qk_norm": False,
        "norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": None,
    }
    sizes = {"num_layers": num_layers, "width": width, "ffn_width": ffn_width, "head_size": head_size}
    return ModelSpec(**(sizes | {"num_heads": heads[0], "num_kv_heads": heads[1]} | shared | own))


SHAPES = {
    "0.5B": qwen25(24, 896, 4864, (14, 2), 64),
    "1.5B": qwen25(28, 1536, 8960, (12, 2), 128),
    "3B": qwen25(36, 2048, 11008, (16, 2), 128),
    "7B": qwen25(28, 3584, 18944, (28, 4), 128, vocab_size=152064, tied_head=False),
    "tiny": qwen25(2, 64, 128, (4, 2), 16, vocab_size=512),
}
SMALL = qwen25(4, 256, 512, (8, 2), 32, vocab_size=2048)
"""For values: float32, and a CPU has them in a moment."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much one measurement does."""

    prompt_tokens: int
    new_tokens: int
    num_prompts: int


def random_decoder(spec: ModelSpec, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Decoder:
    """Random weights made on the device, so that a large model starts in seconds."""
    torch.manual_seed(seed)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            decoder = Decoder(spec)
            torch.nn.init.normal_(decoder.embedding.weight, std=0.05)
    finally:
        torch.set_default_dtype(torch.float32)
    return decoder


def policy_of(decoder: Decoder) -> Policy:
    """A policy without text."""
    return Policy(decoder, None, None, None, None)  # type: ignore[arg-type]


def random_prompts(num: int, length: int, vocab_size: int) -> list[list[int]]:
    return np.random.default_rng(0).integers(vocab_size, size=(num, length)).tolist()


def rows_of(prompts: Sequence[Sequence[int]], completions_PG: Sequence[Sequence[Completion]]) -> list[TrainRow]:
    """Training rows with random advantages, none of them 0."""
    rng = np.random.default_rng(1)
    return [
        TrainRow(p, prompts[p], c.token_ids, float(rng.choice((-1.0, 1.0))), c.logprobs)
        for p, group in enumerate(completions_PG)
        for c in group
    ]
