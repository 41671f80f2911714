"""The parts of a decoder block that look at one token at a time."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_zero.model.spec import Llama3RopeScaling, ModelSpec


class RMSNorm(nn.Module):
    """``x / rms(x) * weight`` over the last axis, in float32 (Zhang & Sennrich, 1910.07467, eq. 4)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype as ``x``; the scale is multiplied after the cast, as the released models do."""
        normed = F.rms_norm(x.float(), (x.shape[-1],), eps=self.eps)
        return normed.to(x.dtype) * self.weight


class GatedMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))`` (SwiGLU, 2002.05202); gate and up are one matrix, gate's rows first."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.gate_up = nn.Linear(spec.width, 2 * spec.ffn_width, bias=spec.mlp_bias)
        self.down = nn.Linear(spec.ffn_width, spec.width, bias=spec.mlp_bias)

    def forward(self, x_TE: Tensor) -> Tensor:
        gate_TF, up_TF = self.gate_up(x_TE).chunk(2, dim=-1)
        return self.down(F.silu(gate_TF) * up_TF)


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
    cos, sin = tables
    first, second = x_TND.chunk(2, dim=-1)
    return x_TND * cos + torch.cat((-second, first), dim=-1) * sin
