"""Sizes and switches of a decoder: everything the forward pass may branch on. No torch here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Llama3RopeScaling:
    """Llama 3.1+ frequency rescaling (``rope_scaling`` with ``rope_type: llama3``)."""

    factor: float
    """How much longer the context is than the one first trained on."""
    low_freq_factor: float
    """Wavelengths longer than ``original_context / low_freq_factor`` are stretched by ``factor``."""
    high_freq_factor: float
    """Wavelengths shorter than ``original_context / high_freq_factor`` stay as they are."""
    original_context: int
    """Context length (tokens) before rescaling."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder's shape. Families differ by these values only, never by code."""

    family: str
    """Hugging Face ``model_type``: for messages and saving, never for a branch in a forward pass."""
    num_layers: int
    width: int
    ffn_width: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    """Rows of the embedding table; may exceed the number of ids that have a token."""
    context: int
    """Largest number of positions the model was made for, tokens."""
    tied_head: bool
    """The vocabulary head is the embedding table."""
    qkv_bias: bool
    output_bias: bool
    """Bias on the attention output projection (Llama's ``attention_bias``)."""
    mlp_bias: bool
    qk_norm: bool
    """RMSNorm on each query and key head before the rotary embedding (Qwen3)."""
    norm_eps: float
    rope_theta: float
    rope_scaling: Llama3RopeScaling | None

    @property
    def num_parameters(self) -> int:
        """Number of distinct weights (a tied table counts once)."""
        q = self.num_heads * self.head_size
        kv = self.num_kv_heads * self.head_size
        attention = self.width * (q + 2 * kv) + q * self.width
        attention += (q + 2 * kv) * self.qkv_bias + self.width * self.output_bias
        attention += 2 * self.head_size * self.qk_norm
        mlp = 3 * self.width * self.ffn_width + (2 * self.ffn_width + self.width) * self.mlp_bias
        tables = self.vocab_size * self.width * (1 if self.tied_head else 2)
        return self.num_layers * (attention + mlp + 2 * self.width) + self.width + tables
