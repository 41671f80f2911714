"""One decoder for every family: a flat stream of tokens in, hidden states out. No batch axis, no padding.

Which token may look at which is the business of ``attend`` alone (``model/attention.py``, ``rollout/cache.py``).
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from grpo_zero.model.layers import GatedMLP, RMSNorm, rope_frequencies, rotary_tables, rotate
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
        self.qkv = nn.Linear(spec.width, sum(self.split) * spec.head_size, bias=spec.qkv_bias)
        self.output = nn.Linear(q_width, spec.width, bias=spec.output_bias)
        self.q_norm = RMSNorm(spec.head_size, spec.norm_eps) if spec.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(spec.head_size, spec.norm_eps) if spec.qk_norm else nn.Identity()

    def forward(self, x_TE: Tensor, tables: tuple[Tensor, Tensor], attend: Attend, layer: int) -> Tensor:
        heads = self.qkv(x_TE).unflatten(-1, (-1, self.head_size))
        q_THD, k_TKD, v_TKD = heads.split(self.split, dim=1)
        q_THD = rotate(self.q_norm(q_THD), tables)
        k_TKD = rotate(self.k_norm(k_TKD), tables)
        return self.output(attend(layer, q_THD, k_TKD, v_TKD).flatten(1))


class Block(nn.Module):
    """Pre-norm attention and MLP, each added to the stream."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(spec.width, spec.norm_eps)
        self.attention = Attention(spec)
        self.mlp_norm = RMSNorm(spec.width, spec.norm_eps)
        self.mlp = GatedMLP(spec)

    def forward(self, x_TE: Tensor, tables: tuple[Tensor, Tensor], attend: Attend, layer: int) -> Tensor:
        x_TE = x_TE + self.attention(self.attention_norm(x_TE), tables, attend, layer)
        return x_TE + self.mlp(self.mlp_norm(x_TE))


class Decoder(nn.Module):
    """Embedding, blocks, final norm; the vocabulary head is applied apart, where it is needed."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = nn.Embedding(spec.vocab_size, spec.width)
        self.layers = nn.ModuleList(Block(spec) for _ in range(spec.num_layers))
        self.norm = RMSNorm(spec.width, spec.norm_eps)
        self.head = None if spec.tied_head else nn.Linear(spec.width, spec.vocab_size, bias=False)
        self.recompute_activations = False
        """Keep only block inputs for backward and compute the rest again (Chen et al., 1604.06174)."""

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
        x_TE = self.embedding(tokens_T)
        frequencies = rope_frequencies(self.spec).to(x_TE.device)
        tables = rotary_tables(positions_T, frequencies, x_TE.dtype)
        for layer, block in enumerate(self.layers):
            if self.recompute_activations and torch.is_grad_enabled():
                x_TE = checkpoint(block, x_TE, tables, attend, layer, use_reentrant=False, preserve_rng_state=False)
            else:
                x_TE = block(x_TE, tables, attend, layer)
        return self.norm(x_TE)

    def logits(self, hidden_TE: Tensor) -> Tensor:
        """Logits ``[T, V]`` in float32. For a few tokens only: training uses ``train/logprobs.py``, by chunks."""
        return F.linear(hidden_TE, self.head_weight_VE).float()
