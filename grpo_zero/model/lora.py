"""LoRA: a frozen weight and a trained product of two thin matrices beside it (Hu et al., 2106.09685, section 4.1).

``y = W x + scale B A x``, ``A [R, in]`` random and ``B [out, R]`` zero at the start, ``scale = alpha / R``, or
``alpha / sqrt(R)`` (rsLoRA, 2312.03732). Our merged products (``qkv``, ``gate_up``) have one pair for each matrix they are made
of, under the names that Hugging Face gives these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grpo_zero.model.decoder import Decoder
from grpo_zero.model.families import hf_shapes, parameter_map
from grpo_zero.model.layers import Linear


class Adapter(nn.Module):
    """The trained part beside one ``Linear``, in float32 whatever the weights' dtype.

    Args:
        sizes: rows of the linear's output by matrix, in order.
        targets: which of them are adapted; at least one.
        in_size: of the linear.
        rank, scale: as above.
        dropout: share of inputs that training leaves out, scaled up for it.
    """

    def __init__(
        self, sizes: Mapping[str, int], targets: frozenset[str], in_size: int, rank: int, scale: float, dropout: float
    ) -> None:
        super().__init__()
        self.sizes, self.scale, self.dropout = dict(sizes), scale, dropout
        ends = {name: name.rpartition(".")[2] for name in sizes}
        self.keys = {name: end for name, end in ends.items() if end in targets}
        """The adapted ones: ``q_proj`` of ``model.layers.0.self_attn.q_proj``."""
        self.a = nn.ParameterDict({key: nn.Parameter(torch.zeros(rank, in_size)) for key in self.keys.values()})
        self.b = nn.ParameterDict(
            {key: nn.Parameter(torch.zeros(sizes[name], rank)) for name, key in self.keys.items()}
        )

    def forward(self, x_TI: Tensor) -> Tensor:
        """What is added to the linear's output, ``[T, out]``, in the dtype of ``x_TI``."""
        wide_TI = F.dropout(x_TI.float(), self.dropout, self.training)
        parts = [
            self._product(wide_TI, self.keys[name]).to(x_TI.dtype)
            if name in self.keys
            else x_TI.new_zeros(len(x_TI), size)
            for name, size in self.sizes.items()
        ]
        return torch.cat(parts, dim=-1)

    def _product(self, wide_TI: Tensor, key: str) -> Tensor:
        """``scale B A x``, scaled where it is thin: in float32 a wide product would take twice the memory it is kept in."""
        return F.linear(F.linear(wide_TI, self.a[key]) * self.scale, self.b[key])

    def delta(self) -> Tensor:
        """What merging adds to the weight, ``[out, in]`` float32."""
        some_a_RI = next(iter(self.a.values()))
        parts = [
            (self.b[self.keys[name]] * self.scale) @ self.a[self.keys[name]]
            if name in self.keys
            else some_a_RI.new_zeros(size, some_a_RI.shape[1])
            for name, size in self.sizes.items()
        ]
        return torch.cat(parts)


def add_adapters(
    decoder: Decoder,
    *,
    rank: int,
    alpha: float,
    targets: frozenset[str],
    dropout: float = 0.0,
    rslora: bool = False,
    seed: int = 0,
) -> None:
    """Freeze the decoder and put adapters beside its linears; until one is trained it computes what it did.

    Args:
        targets: of ``config.LORA_TARGETS``.
        seed: of the ``A`` matrices: uniform within ``1 / sqrt(in)``, as PEFT has them.
    """
    decoder.requires_grad_(False)
    decoder.has_dropout = dropout > 0
    scale = alpha / (math.sqrt(rank) if rslora else rank)
    shapes, generator = hf_shapes(decoder.spec), torch.Generator().manual_seed(seed)
    for our_name, their_names in parameter_map(decoder.spec).items():
        module_name, _, leaf = our_name.rpartition(".")
        linear = decoder.get_submodule(module_name)
        theirs = [name.removesuffix(".weight") for name in their_names]
        if leaf != "weight" or not any(name.rpartition(".")[2] in targets for name in theirs):
            continue
        assert isinstance(linear, Linear)
        sizes = {name: shapes[f"{name}.weight"][0] for name in theirs}
        adapter = Adapter(sizes, targets, linear.in_features, rank, scale, dropout)
        for a_RI in adapter.a.values():
            bound = 1 / math.sqrt(linear.in_features)
            a_RI.data.copy_((2 * torch.rand(a_RI.shape, generator=generator) - 1) * bound)
        linear.adapter = adapter.to(decoder.device)


def adapters(decoder: Decoder) -> Iterator[tuple[str, Linear, Adapter]]:
    """Our name of each adapted linear, the linear, its adapter."""
    for name, module in decoder.named_modules():
        if isinstance(module, Linear) and isinstance(module.adapter, Adapter):
            yield name, module, module.adapter


def base_state(decoder: Decoder) -> dict[str, Tensor]:
    """The weights by our names, themselves, without any adapter."""
    return {name: p for name, p in decoder.named_parameters() if ".adapter." not in name}


def without_adapters(decoder: Decoder) -> Decoder:
    """A frozen decoder on the very same weights, for what they say alone."""
    with torch.device("meta"):
        base = Decoder(decoder.spec)
    base.load_state_dict({name: weight.detach() for name, weight in base_state(decoder).items()}, assign=True)
    return base.requires_grad_(False)


class MergedState(Mapping[str, Tensor]):
    """The weights by our names as if every adapter were a part of its matrix; those without one are not copied.

    A matrix is merged when it is asked for: a checkpoint needs no second copy of the model on the device.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.base = base_state(decoder)
        self.adapters = {f"{name}.weight": adapter for name, _, adapter in adapters(decoder)}

    @torch.no_grad()
    def __getitem__(self, name: str) -> Tensor:
        weight, adapter = self.base[name], self.adapters.get(name)
        return weight if adapter is None else (weight.float() + adapter.delta()).to(weight.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.base)

    def __len__(self) -> int:
        return len(self.base)


def adapter_tensors(decoder: Decoder) -> dict[str, Tensor]:
    """Every pair under the names of PEFT's files: ``base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight``."""
    found = {}
    for _, _, adapter in adapters(decoder):
        for name, key in adapter.keys.items():
            found[f"base_model.model.{name}.lora_A.weight"] = adapter.a[key].data
            found[f"base_model.model.{name}.lora_B.weight"] = adapter.b[key].data
    return found
