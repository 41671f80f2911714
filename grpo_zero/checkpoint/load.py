"""An opened model to a decoder with weights."""

from __future__ import annotations

import reprlib

import torch
from torch import Tensor, nn

from grpo_zero.checkpoint.source import Source
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.families import hf_shapes, parameter_map


def load_decoder(
    source: Source,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    random_init_seed: int | None = None,
) -> Decoder:
    """A decoder with the source's weights, or with random ones when a seed is given.

    The decoder is built without memory and filled one parameter at a time, so the peak is one copy
    of the weights plus one tensor. Random weights depend on the seed and the spec alone, not on
    device or dtype (up to rounding): normal with the config's ``initializer_range`` (0.02 if not
    named), norms 1, biases 0.
    """
    with torch.device("meta"):
        decoder = Decoder(source.spec)
    generator = None
    if random_init_seed is not None:
        generator = torch.Generator().manual_seed(random_init_seed)
    std = source.config.get("initializer_range", 0.02)
    if type(std) not in (int, float) or not 0 <= std <= 1:
        raise UserError(
            f"config.json in {source.origin} says initializer_range {reprlib.repr(std)}; expected a number from 0 to 1."
        )
    shapes = hf_shapes(source.spec)
    for name, their_names in parameter_map(source.spec).items():
        shape = decoder.get_parameter(name).shape
        values = torch.empty(shape, dtype=dtype, device=device)
        if generator is None:
            rows = [shapes[their_name][0] for their_name in their_names]
            for part, their_name in zip(values.split(rows), their_names, strict=True):
                part.copy_(source.tensor(their_name))
        else:
            values.copy_(_random_values(name, shape, std, generator))
        module_name, _, leaf = name.rpartition(".")
        setattr(decoder.get_submodule(module_name), leaf, nn.Parameter(values))
    return decoder


def _random_values(name: str, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(".bias"):
        return torch.zeros(shape)
    return torch.randn(shape, generator=generator) * std
