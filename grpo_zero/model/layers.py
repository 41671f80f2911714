"""The parts of a decoder block that look at one token at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_zero.model import functions
from grpo_zero.model.scratch import Scratch
from grpo_zero.model.spec import Llama3RopeScaling, ModelSpec

Product = Callable[[Tensor], Tensor]
"""``[T, in] -> [T, out]``: what a Linear computes, by another kernel."""


class Linear(nn.Linear):
    """``nn.Linear`` whose product can be replaced while nothing is learned from it (``rollout/products.py``)."""

    product: Product | None = None

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.adapter: nn.Module | None = None
        """What is trained beside a frozen weight (``model/lora.py``)."""

    def forward(self, x_TI: Tensor) -> Tensor:
        out_TO = self._multiply(x_TI)
        return out_TO if self.adapter is None else out_TO + self.adapter(x_TI)

    def _multiply(self, x_TI: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return functions.Linear.apply(x_TI, self.weight, self.bias)
        return super().forward(x_TI) if self.product is None else self.product(x_TI)


class Embedding(nn.Embedding):
    """``nn.Embedding`` with the backward of ``functions.Embedding``."""

    def reset_parameters(self) -> None:
        """Nothing without memory: drawing normal numbers there imports PyTorch's compiler, 170 MB and seconds."""
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, tokens_T: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return functions.Embedding.apply(tokens_T, self.weight)
        return super().forward(tokens_T)


class RMSNorm(nn.Module):
    """``x / rms(x) * weight`` over the last axis, in float32 (Zhang & Sennrich, 1910.07467, eq. 4)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype as ``x``; the scale is multiplied after the cast, as the released models do."""
        return (x * functions.reciprocal_rms(x, self.eps)).to(x.dtype) * self.weight

    def linear(self, x_TE: Tensor, linear: Linear) -> Tensor:
        """``linear`` of the normed input."""
        if torch.is_grad_enabled() and linear.adapter is None:
            return functions.NormLinear.apply(x_TE, self.weight, self.eps, linear.weight, linear.bias)
        return linear(self(x_TE))


class GatedMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))`` (SwiGLU, 2002.05202); gate and up are one matrix, gate's rows first."""

    def __init__(self, spec: ModelSpec, scratch: Scratch) -> None:
        super().__init__()
        self.gate_up = Linear(spec.width, 2 * spec.ffn_width, bias=spec.mlp_bias)
        self.down = Linear(spec.ffn_width, spec.width, bias=spec.mlp_bias)
        self.keeps_gate_up = True
        """Whether backward finds the first product or computes it again."""
        self.scratch = scratch
        """Shared by all layers of a decoder."""

    def forward(self, x_TE: Tensor, norm: RMSNorm) -> Tensor:
        """The MLP of the normed input."""
        gate_up, down = self.gate_up, self.down
        if torch.is_grad_enabled() and gate_up.adapter is None and down.adapter is None:
            matrices = (gate_up.weight, gate_up.bias, down.weight, down.bias)
            return functions.NormGatedMLP.apply(
                x_TE, norm.weight, norm.eps, *matrices, self.keeps_gate_up, self.scratch
            )
        gate_TF, up_TF = gate_up(norm(x_TE)).chunk(2, dim=-1)
        return down(F.silu(gate_TF) * up_TF)


def rope_frequencies(spec: ModelSpec) -> Tensor:
    """Rotary angles per position, ``[D/2]`` float32 (RoFormer, 2104.09864, section 3.2.2).

    With ``rope_scaling`` the Llama 3.1 rule: wavelengths longer than the original context are divided by ``factor``,
    short ones are kept, those between are blended linearly in context / wavelength.
    """
    exponents = torch.arange(0, spec.head_size, 2, dtype=torch.float32) / spec.head_size
    frequencies = 1.0 / (spec.rope_theta**exponents)
    scaling = spec.rope_scaling
    return frequencies if scaling is None else _llama3_rescale(frequencies, scaling)


def _llama3_rescale(frequencies: Tensor, scaling: Llama3RopeScaling) -> Tensor:
    periods_in_context = scaling.original_context * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept_share = ((periods_in_context - low) / (high - low)).clamp(0.0, 1.0)
    return kept_share * frequencies + (1 - kept_share) * frequencies / scaling.factor


def rotary_tables(positions_T: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``(cos, sin)``, each ``[T, 1, D]``: computed in float32, cast at the end; halves repeat (rotate-half form)."""
    angles = positions_T.float()[:, None] * frequencies[None, :]
    angles_TD = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles_TD.cos().to(dtype), angles_TD.sin().to(dtype)


def rotate(x_TND: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each head vector by its position's angle. Shape kept."""
    return functions.Rotate.apply(x_TND, *tables) if torch.is_grad_enabled() else functions.turn(x_TND, *tables)
