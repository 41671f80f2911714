"""Adam's two moments in float32 or in 8 bits: what is kept of them between steps, and how it is read and written.

8 bits follow block-wise quantisation (Dettmers et al., 2110.02861, section 2.1): the weights of a parameter, laid flat, are cut
into blocks of 256, each with its own float32 scale, the largest magnitude in it, which is kept exactly. So a moment takes
``1 + 4 / 256`` bytes a weight. Departures:

1. Codes are powers, not a lookup table: plain arithmetic that every device is fast at, without a kernel of our own.
2. Codes are rounded up or down by a number between 0 and 1 that differs from step to step (``dither``). A moving average with
   decay 0.999 moves by less than half the distance of two codes, so rounding to the nearest could stop it for good. The code
   is right on average; as powers are convex, the value is a little too high: of the second moment that is the safe side.
3. The smallest second moment is larger than the smallest first one squared. So a first moment rounded up from nearly nothing
   never meets a root that is nearly nothing, which would be a step of thousands of learning rates.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 256
"""Weights that share a scale. Axis names here: N blocks, M weights of a block."""
SIGNED_LEVELS = 127
"""First moment: code c is ``sign(c) (c / 127)^4`` of the scale; the smallest is 3.8e-9 of it, smaller ones become that or 0."""
UNSIGNED_LEVELS = 255
LEVEL_OFFSET = 6
"""Second moment: code 0 is zero, c > 0 is ``((c + 6) / 261)^8`` of the scale; the smallest is 2.7e-13, whose root is 5.2e-7.
Neighbours differ by 3 % at the top, as the first moment's do, by 30 % at 1e-7 of the scale, and by a factor 2.9 at the bottom."""


def parts(num_weights: int, chunk: int) -> list[slice]:
    """A flat parameter in pieces of ``chunk`` weights, a multiple of ``BLOCK``; the last may be shorter."""
    return [slice(start, min(start + chunk, num_weights)) for start in range(0, num_weights, chunk)]


def new_moments(shape: torch.Size, bits: int, device: torch.device) -> dict[str, Tensor]:
    """Zeros for a parameter: ``moment1`` and ``moment2`` in its shape; with 8 bits also ``moment1_scale`` and
    ``moment2_scale``, ``[N]``."""
    if bits == 32:
        return {name: torch.zeros(shape, dtype=torch.float32, device=device) for name in ("moment1", "moment2")}
    scale_N = torch.zeros(-(-shape.numel() // BLOCK), dtype=torch.float32, device=device)
    return {
        "moment1": torch.zeros(shape, dtype=torch.int8, device=device),
        "moment1_scale": scale_N,
        "moment2": torch.zeros(shape, dtype=torch.uint8, device=device),
        "moment2_scale": scale_N.clone(),
    }


def read_moments(state: dict[str, Tensor], part: slice) -> list[Tensor]:
    """Both moments of a part of a parameter, flat float32: of 32 bits the kept ones themselves, of 8 bits a copy.

    ``part`` begins at a multiple of ``BLOCK``, and ends at one or with the parameter (``parts``).
    """
    moments = [state[name].view(-1)[part] for name in ("moment1", "moment2")]
    if "moment1_scale" not in state:
        return moments
    blocks = slice(part.start // BLOCK, -(-part.stop // BLOCK))
    return [
        dequantise_signed(moments[0], state["moment1_scale"][blocks]),
        dequantise_unsigned(moments[1], state["moment2_scale"][blocks]),
    ]


def write_moments(state: dict[str, Tensor], part: slice, moments: list[Tensor], step: int) -> None:
    """Keep what ``read_moments`` gave and a step has changed; ``step`` chooses the rounding."""
    if "moment1_scale" not in state:
        return
    blocks = slice(part.start // BLOCK, -(-part.stop // BLOCK))
    for name, quantise, moment, pace in zip(
        ("moment1", "moment2"), (quantise_signed, quantise_unsigned), moments, (0.6180340, 0.4142136), strict=True
    ):
        codes, scale_N = quantise(moment, dither(blocks, step * pace, moment.device))
        state[name].view(-1)[part] = codes
        state[f"{name}_scale"][blocks] = scale_N


def quantise_signed(values: Tensor, dither_NM: Tensor) -> tuple[Tensor, Tensor]:
    """Float32 ``[weights]`` -> (int8 codes ``[weights]``, float32 ``scale_N``)."""
    blocks_NM = _blocks(values)
    shares_NM, scale_N = _shares(blocks_NM.abs())
    levels_NM = shares_NM.sqrt_().sqrt_().mul_(SIGNED_LEVELS)
    codes_NM = levels_NM.add_(dither_NM).floor_().clamp_(max=SIGNED_LEVELS).copysign_(blocks_NM)
    return codes_NM.to(torch.int8).view(-1)[: values.numel()], scale_N


def dequantise_signed(codes: Tensor, scale_N: Tensor) -> Tensor:
    """The inverse: float32 ``[weights]``."""
    levels_NM = _blocks(codes.float())
    shares_NM = (levels_NM / SIGNED_LEVELS).square_().square_().copysign_(levels_NM)
    return shares_NM.mul_(scale_N[:, None]).view(-1)[: codes.numel()]


def quantise_unsigned(values: Tensor, dither_NM: Tensor) -> tuple[Tensor, Tensor]:
    """Float32 ``[weights]``, none negative -> (uint8 codes ``[weights]``, float32 ``scale_N``). Only zero becomes zero."""
    blocks_NM = _blocks(values)
    shares_NM, scale_N = _shares(blocks_NM)
    levels_NM = shares_NM.sqrt_().sqrt_().sqrt_().mul_(UNSIGNED_LEVELS + LEVEL_OFFSET)
    codes_NM = levels_NM.add_(dither_NM).floor_().sub_(LEVEL_OFFSET).clamp_(1, UNSIGNED_LEVELS)
    return codes_NM.mul_(blocks_NM != 0).to(torch.uint8).view(-1)[: values.numel()], scale_N


def dequantise_unsigned(codes: Tensor, scale_N: Tensor) -> Tensor:
    """The inverse: float32 ``[weights]``."""
    codes_NM = _blocks(codes.float())
    shares_NM = (codes_NM + LEVEL_OFFSET).div_(UNSIGNED_LEVELS + LEVEL_OFFSET).square_().square_().square_()
    return shares_NM.mul_(codes_NM != 0).mul_(scale_N[:, None]).view(-1)[: codes.numel()]


def dither(blocks: slice, phase: float, device: torch.device) -> Tensor:
    """Numbers in [0, 1), float32 ``[N, M]``, spread evenly within a block, over blocks and over phases.

    An additive recurrence (multiples of irrational numbers, modulo 1) in place of random ones: the same on every device and
    after every resume, whatever the chunks, and a sum and a fraction to compute.
    """
    within_M = torch.arange(BLOCK, dtype=torch.float64, device=device).mul_(0.7548777).frac_()
    among_N = torch.arange(blocks.start, blocks.stop, dtype=torch.float64, device=device).mul_(0.5698403).add_(phase)
    return (within_M.float() + among_N.frac_().float()[:, None]).frac_()


def _blocks(values: Tensor) -> Tensor:
    """``[weights]`` as ``[N, M]``, the last block filled up with zeros."""
    missing = -values.numel() % BLOCK
    return (F.pad(values, (0, missing)) if missing else values).view(-1, BLOCK)


def _shares(blocks_NM: Tensor) -> tuple[Tensor, Tensor]:
    """Magnitudes as shares of their block's largest, and these ``scale_N``; a block of zeros has shares 0."""
    scale_N = blocks_NM.amax(1)
    return blocks_NM / (scale_N + (scale_N == 0))[:, None], scale_N
