"""Read a GGUF file (llama, qwen2, qwen3): the same parts as a Hugging Face folder, in float32.

The header is read by ``gguf_header.py``; dequantising is the ``gguf`` package's. What the converter
(llama.cpp, convert_hf_to_gguf.py) changed is changed back here:

1. Tensor names.
2. For the llama architecture, rows of q and k (weights and biases) are stored in the order that
   rotates neighbours; we rotate halves, as Hugging Face does. Qwen is stored as it is.
3. Llama 3's RoPE rescaling is stored as a tensor of divisors, ``rope_freqs.weight``.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from grpo_zero.checkpoint.gguf_header import GgufError, GgufHeader, read_header
from grpo_zero.checkpoint.gguf_tokenizer import tokenizer_files
from grpo_zero.checkpoint.raw import RawCheckpoint
from grpo_zero.errors import UserError
from grpo_zero.model.families import FAMILIES

ROPE_DIVISORS = "rope_freqs.weight"

_MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_REQUIRED = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}


def read_gguf(path: Path, *, weights: bool = True) -> RawCheckpoint:
    """The parts of a GGUF file; tensors are dequantised when asked for.

    Raises ``UserError`` for a damaged file, and for an architecture, RoPE type or tokenizer that is
    not supported.
    """
    try:
        header = read_header(path)
        tensors = _map_tensors(header, path)
    except GgufError as error:
        raise UserError(
            f"{path} ({path.stat().st_size:,} bytes) is not a whole GGUF file ({error}); it was "
            f"cut off or damaged: download it again."
        ) from error
    reader = GgufReader(tensors, header.metadata, path)
    files = tokenizer_files(header.metadata, str(path))
    return RawCheckpoint(
        origin=str(path),
        config=_config(header.metadata, reader, path),
        files=files,
        reader=reader if weights else None,
    )


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor that has been found in the file and not been read."""

    name: str
    shape: tuple[int, ...]
    type: Any
    """gguf's ``GGMLQuantizationType``."""
    data: npt.NDArray[Any]
    """The mapped values, or ``[..., bytes of a row]`` of a type that gguf unpacks."""


def _map_tensors(header: GgufHeader, path: Path) -> list[GgufTensor]:
    """Every tensor over the mapped file. Raises ``GgufError`` for one that lies over another or past the file's end."""
    import gguf  # takes a moment to import, and few runs need it

    plain = {gguf.GGMLQuantizationType.F32: np.float32, gguf.GGMLQuantizationType.F16: np.float16}
    mapped = np.memmap(path, mode="r")
    found, end = [], 0
    for place in sorted(header.tensors, key=lambda place: place.start):
        if place.type_id not in set(gguf.GGMLQuantizationType):
            raise GgufError(f"its tensor {place.name[:60]!r} has the unknown type {place.type_id}")
        kind = gguf.GGMLQuantizationType(place.type_id)
        block_size, type_size = gguf.GGML_QUANT_SIZES[kind]
        *rows, row = place.shape or (1,)
        if row % block_size:
            raise GgufError(f"its tensor {place.name[:60]!r} has rows that are no whole blocks")
        row_bytes = row // block_size * type_size
        num_bytes = math.prod(rows) * row_bytes
        if place.start < end or place.start + num_bytes > mapped.size:
            raise GgufError(f"its tensor {place.name[:60]!r} lies over another or past the end")
        end = place.start + num_bytes
        values = mapped[place.start : end].view(plain.get(kind, np.uint8))
        found.append(GgufTensor(place.name, place.shape, kind, values.reshape(*rows, row_bytes // values.itemsize)))
    return found


class GgufReader:
    """Tensors of a GGUF file under Hugging Face names, float32 (a ``TensorReader``)."""

    def __init__(self, tensors: Sequence[GgufTensor], metadata: Mapping[str, Any], path: Path) -> None:
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str) or architecture not in FAMILIES:
            raise UserError(
                f"{path} holds a model of architecture {reprlib.repr(architecture)}; expected one of "
                f"{', '.join(FAMILIES)}: choose a model of these families."
            )
        self._path = path
        self._by_name = {_hf_name(tensor.name): tensor for tensor in tensors}
        self.rope_divisors = self._by_name.pop(ROPE_DIVISORS, None)
        heads = metadata.get(f"{architecture}.attention.head_count")
        kv_heads = metadata.get(f"{architecture}.attention.head_count_kv", heads)
        self._heads = {"q_proj": heads, "k_proj": kv_heads} if architecture == "llama" else {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._by_name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._by_name[name].shape

    def tensor(self, name: str) -> torch.Tensor:
        values = dequantise(self._by_name[name], self._path).reshape(self.shape(name))
        num_heads = self._heads.get(name.split(".")[-2])
        if num_heads is not None:
            values = to_rotate_halves(values, num_heads)
        return torch.from_numpy(np.array(values))


def dequantise(tensor: GgufTensor, path: Path) -> npt.NDArray[np.float32]:
    """Values of a GGUF tensor. Raises ``UserError`` for a block type that gguf cannot decode."""
    from gguf.quants import dequantize

    try:
        return dequantize(tensor.data, tensor.type)
    except NotImplementedError as error:
        raise UserError(
            f"{tensor.name} in {path} is stored as {tensor.type.name}, which the gguf "
            f"package can't decode; expected F32, F16, BF16, Q8_0 or another common type: take "
            f"another file."
        ) from error


def to_rotate_halves(rows: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """Undo the converter's order of q or k rows: per head, even rows first, then odd ones.

    ``rows`` is a weight ``[H*D, E]`` or a bias ``[H*D]``; the shape is kept.
    """
    by_pair = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return by_pair.swapaxes(1, 2).reshape(rows.shape)


def _hf_name(name: str) -> str:
    module, _, leaf = name.rpartition(".")
    if module in _MODULES:
        return f"{_MODULES[module]}.{leaf}"
    prefix, _, part = module.rpartition(".")
    if prefix.startswith("blk.") and part in _LAYER_MODULES:
        return f"model.layers.{prefix.removeprefix('blk.')}.{_LAYER_MODULES[part]}.{leaf}"
    return name  # reported as an extra tensor


def _config(metadata: Mapping[str, Any], reader: GgufReader, path: Path) -> dict[str, Any]:
    """A Hugging Face config.json made of the metadata; ``spec_from_config`` checks the sizes."""
    architecture = metadata["general.architecture"]

    def get(key: str, default: Any = None) -> Any:
        return metadata.get(f"{architecture}.{key}", default)

    sizes = {key: get(gguf_key) for key, gguf_key in _REQUIRED.items()}
    heads = sizes["num_attention_heads"]
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    config = {
        "architectures": [FAMILIES[architecture].architecture],
        "model_type": architecture,
        **sizes,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "head_dim": get("attention.key_length", get("rope.dimension_count")),
        "vocab_size": get("vocab_size", len(tokens)),
        "rms_norm_eps": _shortest_decimal(get("attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest_decimal(get("rope.freq_base", 10000.0)),
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": "model.layers.0.self_attn.o_proj.bias" in reader.names,
        "mlp_bias": "model.layers.0.mlp.down_proj.bias" in reader.names,
        "tie_word_embeddings": "lm_head.weight" not in reader.names,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "initializer_range": 0.02,
    }
    kind = get("rope.scaling.type", "none")
    if reader.rope_divisors is not None:
        config["rope_scaling"] = _llama3_scaling(config, reader.rope_divisors, path)
    elif kind != "none":
        config["rope_scaling"] = {"rope_type": kind}
    return config


def _llama3_scaling(config: Mapping[str, Any], tensor: GgufTensor, path: Path) -> dict[str, Any]:
    """The rule whose divisors the file stores. The file has no other trace of it.

    Llama 3.1 to 3.3 share all values but ``factor``, so that is read off the longest wavelength,
    and the divisors it gives are compared. Raises ``UserError`` when they are others.
    """
    divisors, theta = dequantise(tensor, path), config["rope_theta"]
    factor, low, high, context = round(float(divisors.max(initial=0)), 3), 1.0, 4.0, 8192
    is_rule = 0 < factor < math.inf and isinstance(theta, float) and 0 < theta < math.inf
    if is_rule:
        head_size = 2 * divisors.size
        exponents = np.arange(0, head_size, 2) / head_size
        periods_in_context = context / (2 * math.pi * theta**exponents)
        kept_share = np.clip((periods_in_context - low) / (high - low), 0, 1)
        expected = 1 / (kept_share + (1 - kept_share) / factor)
        is_rule = np.allclose(divisors, expected, rtol=1e-3)
    if not is_rule:
        raise UserError(
            f"{ROPE_DIVISORS} in {path} is not Llama 3's RoPE scaling; expected low 1, high 4 and "
            f"an original context of {context}: use the model's Hugging Face folder instead."
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }


def _shortest_decimal(value: Any) -> Any:
    """1e-05 for the float32 nearest to it, which Python prints as 9.999999747378752e-06; other things as they are."""
    is_small = type(value) in (int, float) and abs(value) < 1e30
    return float(str(np.float32(value))) if is_small else value
