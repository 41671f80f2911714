"""Tensors of kinds that files may hold and we do not compute, and models without weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import gguf
import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_gguf import random_tensors, write_gguf

from grpo_zero.checkpoint.hf import SafetensorsReader
from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.errors import UserError


def test_a_type_that_torch_lacks(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(3))
    reader = SafetensorsReader(tmp_path)
    assert reader.shape("a") == (4,)
    with pytest.raises(UserError, match="is not a whole safetensors file"):
        reader.tensor("a")


def test_a_head_of_its_own_and_of_another_shape(tiny_folder: Path) -> None:
    path = tiny_folder / "model.safetensors"
    save_file(load_file(path) | {"lm_head.weight": torch.ones(3, 32)}, path)
    with pytest.raises(UserError, match=r"lm_head.weight in .* has shape \[3, 32\]; expected \[100, 32\]"):
        open_source(str(tiny_folder))


@pytest.mark.parametrize("scale", [-0.1, 2, "wide", True, None])
def test_random_weights_of_no_scale(bare_folder: Path, scale: object) -> None:
    path = bare_folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"initializer_range": scale}))
    source = open_source(str(bare_folder), weights=False)
    with pytest.raises(UserError, match=r"initializer_range .*; expected a number from 0 to 1"):
        load_decoder(source, dtype=torch.float32, device="cpu", random_init_seed=0)


def test_no_tensor_of_a_model_without_weights(bare_folder: Path) -> None:
    source = open_source(str(bare_folder), weights=False)
    assert source.names == frozenset()
    with pytest.raises(ValueError, match="opened without weights"):
        source.tensor("model.norm.weight")


def test_a_gguf_type_that_is_not_unpacked(tmp_path: Path) -> None:
    tensors = random_tensors("qwen2")
    tensors["model.norm.weight"] = np.ones(32, np.int32)
    write_gguf(tmp_path / "model.gguf", "qwen2", tensors)
    source = open_source(str(tmp_path / "model.gguf"))
    with pytest.raises(UserError, match=r"output_norm.weight in .* is stored as I32, which"):
        source.tensor("model.norm.weight")


def test_halves_and_blocks_are_unpacked(tmp_path: Path) -> None:
    tensors = random_tensors("qwen2")
    name = "model.layers.0.mlp.up_proj.weight"
    path = tmp_path / "model.gguf"
    write_gguf(path, "qwen2", tensors | {name: tensors[name].astype(np.float16)})
    torch.testing.assert_close(
        open_source(str(path)).tensor(name), torch.from_numpy(tensors[name]), rtol=1e-3, atol=1e-3
    )
    blocks = gguf.quantize(tensors[name], gguf.GGMLQuantizationType.Q8_0)
    back = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "q8.gguf", "qwen2")
    writer.add_tensor("a", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    from grpo_zero.checkpoint.gguf import _map_tensors, dequantise
    from grpo_zero.checkpoint.gguf_header import read_header

    (tensor,) = _map_tensors(read_header(tmp_path / "q8.gguf"), tmp_path / "q8.gguf")
    assert tensor.shape == tensors[name].shape
    assert np.array_equal(dequantise(tensor, tmp_path), back)


def test_a_licence_that_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:

    def refuse(*_: object, **__: object) -> None:
        error = huggingface_hub.errors.GatedRepoError.__new__(huggingface_hub.errors.GatedRepoError)
        Exception.__init__(error, "gated")
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(UserError, match=r"org/name needs its licence accepted"):
        open_source("org/name")
