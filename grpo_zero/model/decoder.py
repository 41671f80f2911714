"""One decoder for every family: a flat stream of tokens in, hidden states out. No batch axis, no padding.

Which token may look at which is the business of ``attend`` alone (``model/attention.py``, ``rollout/cache.py``).
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_zero.model.layers import (
    Embedding,
    GatedMLP,
    Linear,
    Product,
    RMSNorm,
    rope_frequencies,
    rotary_tables,
    rotate,
)
from grpo_zero.model.recompute import recomputed
from grpo_zero.model.scratch import Scratch
from grpo_zero.model.spec import ModelSpec


class Attend(Protocol):
    """Decides who looks at whom."""

    def __call__(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        """Attention output ``[T, H, D]`` of this layer, queries and keys already rotated."""
        ...


class Attention(nn.Module):
    """Projections, optional QK norm and the rotary embedding; the mixing itself is ``attend``'s."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.split = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        self.head_size = spec.head_size
        q_width = spec.num_heads * spec.head_size
        self.qkv = Linear(spec.width, sum(self.split) * spec.head_size, bias=spec.qkv_bias)
        self.output = Linear(q_width, spec.width, bias=spec.output_bias)
        self.q_norm = RMSNorm(spec.head_size, spec.norm_eps) if spec.qk_norm else None
        self.k_norm = RMSNorm(spec.head_size, spec.norm_eps) if spec.qk_norm else None

    def forward(self, x_TE: Tensor, norm: RMSNorm, tables: tuple[Tensor, Tensor], attend: Attend, layer: int) -> Tensor:
        """Attention over the normed input."""
        heads = norm.linear(x_TE, self.qkv).unflatten(-1, (-1, self.head_size))
        num_heads, num_kv_heads, _ = self.split
        if self.q_norm is None or self.k_norm is None:
            qk_TND = heads[:, : num_heads + num_kv_heads]
        else:
            q_THD, k_TKD, _ = heads.split(self.split, dim=1)
            qk_TND = torch.cat((self.q_norm(q_THD), self.k_norm(k_TKD)), dim=1)
        q_THD, k_TKD = rotate(qk_TND, tables).split((num_heads, num_kv_heads), dim=1)
        return self.output(attend(layer, q_THD, k_TKD, heads[:, -num_kv_heads:]).flatten(1))


class Block(nn.Module):
    """Pre-norm attention and MLP, each added to the stream."""

    def __init__(self, spec: ModelSpec, scratch: Scratch) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(spec.width, spec.norm_eps)
        self.attention = Attention(spec)
        self.mlp_norm = RMSNorm(spec.width, spec.norm_eps)
        self.mlp = GatedMLP(spec, scratch)

    def forward(self, x_TE: Tensor, tables: tuple[Tensor, Tensor], attend: Attend, layer: int) -> Tensor:
        x_TE = x_TE + self.attention(x_TE, self.attention_norm, tables, attend, layer)
        return x_TE + self.mlp(x_TE, self.mlp_norm)


class Decoder(nn.Module):
    """Embedding, blocks, final norm; the vocabulary head is applied apart, where it is needed."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = Embedding(spec.vocab_size, spec.width)
        self.scratch = Scratch()
        """What a forward takes of it is given back at its end; who goes backward clears it then."""
        self.layers = nn.ModuleList(Block(spec, self.scratch) for _ in range(spec.num_layers))
        self.norm = RMSNorm(spec.width, spec.norm_eps)
        self.head = None if spec.tied_head else Linear(spec.width, spec.vocab_size, bias=False)
        self.recompute = "none"
        """What backward computes again instead of finding it kept: see ``recompute_activations``."""
        self.has_dropout = False
        """Whether a forward draws random numbers, which computing it again has to draw once more."""
        self.head_product: Product | None = None
        """Another kernel for the head, while sampling."""
        self.frequencies: Tensor | None = None
        """Of the rotary embedding, float32 whatever the weights' dtype, on the device since the first forward there."""

    def recompute_activations(self, mode: str) -> None:
        """Choose what is kept for backward.

        ``none``: what is dear to compute. ``selective``: not the MLP's first product, two thirds of it. ``full``: block inputs
        alone, each block computed again (Chen et al., 1604.06174).
        """
        self.recompute = mode
        for mlp in (module for module in self.modules() if isinstance(module, GatedMLP)):
            mlp.keeps_gate_up = mode == "none"

    @property
    def head_weight_VE(self) -> Tensor:
        """The vocabulary head ``[V, E]``: the embedding table where the two are tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def forward(self, tokens_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        """Hidden states after the final norm, ``[T, E]`` in the weights' dtype.

        Args:
            tokens_T: token ids, int64.
            positions_T: position of each token in its own sequence, int64.
            attend: who looks at whom; called once a layer, in order.
        """
        is_learning = torch.is_grad_enabled()
        x_TE = self.embedding(tokens_T)
        tables = rotary_tables(positions_T, self._rope_frequencies(), x_TE.dtype)
        for layer, block in enumerate(self.layers):
            if is_learning and self.recompute == "full":
                x_TE = recomputed(partial(block, tables=tables, attend=attend, layer=layer), x_TE, self.has_dropout)
            else:
                x_TE = block(x_TE, tables, attend, layer)
        self.scratch.clear()
        return self.norm(x_TE)

    def logits(self, hidden_TE: Tensor) -> Tensor:
        """Logits ``[T, V]`` in float32. For a few tokens only: training uses ``train/logprobs.py``, by chunks."""
        product = self.head_product
        logits_TV = F.linear(hidden_TE, self.head_weight_VE) if product is None else product(hidden_TE)
        return logits_TV.float()

    def _rope_frequencies(self) -> Tensor:
        """Kept on the device: a CUDA graph cannot hold a copy from the host."""
        if self.frequencies is None or self.frequencies.device != self.device:
            with torch.inference_mode(False):
                self.frequencies = rope_frequencies(self.spec).to(self.device)
        return self.frequencies
