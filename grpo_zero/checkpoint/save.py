"""Save a model as a Hugging Face folder that transformers and we open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from grpo_zero.checkpoint.atomic import replace_folder
from grpo_zero.checkpoint.hf import INDEX_FILE, SINGLE_FILE
from grpo_zero.errors import UserError
from grpo_zero.json_text import json_text
from grpo_zero.model.families import FAMILIES, hf_shapes, parameter_map
from grpo_zero.model.spec import ModelSpec
from grpo_zero.text.tokenizer import Tokenizer

MAX_SHARD_BYTES = 5_000_000_000


def save_folder(
    folder: Path,
    state: Mapping[str, Tensor],
    spec: ModelSpec,
    *,
    config: Mapping[str, Any],
    tokenizer: Tokenizer,
    generation_config: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    overwrite: bool = False,
) -> None:
    """Write config, weights and tokenizer; the folder appears whole or not at all.

    A tied table is written once (fault K04), an untied head always, and config.json says which
    (P04). Tokenizer files and the chat template are copied byte for byte.

    Args:
        folder: where to. An existing one is replaced if ``overwrite``, else refused.
        state: our parameter names to tensors, e.g. ``dict(decoder.named_parameters())``.
        spec: of the decoder, with ``tied_head`` as it is now.
        config: config.json of the model it came from; its other keys are kept.
        tokenizer: its files are copied; its stop ids become ``eos_token_id``.
        generation_config: the source's, whose other keys are kept.
        dtype: of the file; by default that of the weights.
        max_shard_bytes: a larger model is cut into shards with an index.

    Raises ``UserError`` when the folder exists and may not be replaced.
    """
    if folder.exists() and not overwrite and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"{folder} already exists; expected a new folder to save the model in: choose another "
            f"name, or remove it first."
        )
    dtype = dtype or state["embedding.weight"].dtype
    stop_ids = sorted(tokenizer.stop_ids)
    generation = {**(generation_config or {}), "eos_token_id": stop_ids}
    with replace_folder(folder) as aside:
        _write_json(aside / "config.json", _saved_config(config, spec, dtype, stop_ids))
        _write_json(aside / "generation_config.json", generation)
        for name, content in tokenizer.files.items():
            (aside / name).write_bytes(content)
        _write_weights(aside, state, spec, dtype, max_shard_bytes)


def _saved_config(
    config: Mapping[str, Any], spec: ModelSpec, dtype: torch.dtype, stop_ids: list[int]
) -> dict[str, Any]:
    dtype_name = str(dtype).removeprefix("torch.")
    return {
        **config,
        "architectures": [FAMILIES[spec.family].architecture],
        "model_type": spec.family,
        "tie_word_embeddings": spec.tied_head,
        "torch_dtype": dtype_name,  # the name of the key up to transformers 4
        "dtype": dtype_name,
        "eos_token_id": stop_ids,
    }


def _write_weights(
    folder: Path,
    state: Mapping[str, Tensor],
    spec: ModelSpec,
    dtype: torch.dtype,
    max_shard_bytes: int,
) -> None:
    shards = _plan_shards(spec, dtype, max_shard_bytes)
    if len(shards) == 1:
        files = [SINGLE_FILE]
    else:
        count = len(shards)
        files = [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]
        total_size = spec.num_parameters * dtype.itemsize
        weight_map = {n: file for file, names in zip(files, shards, strict=True) for n in names}
        index = {"metadata": {"total_size": total_size}, "weight_map": weight_map}
        _write_json(folder / INDEX_FILE, index)
    pieces = hf_pieces(state, spec)
    for file, names in zip(files, shards, strict=True):
        # Names were planned in the order of `pieces`, so only one shard is on the CPU at a time.
        tensors = {}
        for expected in names:
            name, piece = next(pieces)
            assert name == expected
            tensors[name] = piece.detach().to("cpu", dtype).contiguous()
        save_file(tensors, folder / file, metadata={"format": "pt"})


def hf_pieces(state: Mapping[str, Tensor], spec: ModelSpec) -> Iterator[tuple[str, Tensor]]:
    """Hugging Face names and tensors (views of ours), in the order of ``hf_shapes``."""
    shapes = hf_shapes(spec)
    for our_name, their_names in parameter_map(spec).items():
        rows = [shapes[name][0] for name in their_names]
        yield from zip(their_names, state[our_name].split(rows), strict=True)


def _plan_shards(spec: ModelSpec, dtype: torch.dtype, max_shard_bytes: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    used = 0
    for name, shape in hf_shapes(spec).items():
        num_bytes = torch.Size(shape).numel() * dtype.itemsize
        if shards[-1] and used + num_bytes > max_shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += num_bytes
    return shards


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json_text(value, indent=2) + "\n", encoding="utf-8")
