"""Whatever is in a model's files, opening and using it works or ends in one sentence: no traceback, no crash, no bomb."""

from __future__ import annotations

import json
import resource
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.damage import WORDS, damaged_bytes, damaged_json
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.errors import UserError

USE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
"""The folder is made whole again by each example."""
ROOM = 3 * 2**30
"""Address space that an example may take beyond what the process has: an honest refusal needs none."""
JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
MESSAGES = [{"role": "user", "content": "abcd"}]


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """A file that makes us ask for far more than it holds fails here, and not on somebody's machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").is_file() else None
    if pages is not None:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def use(path: Path) -> None:
    """Open, load, ask: as a command would."""
    try:
        source = open_source(str(path))
        load_decoder(source, dtype=torch.float32, device="cpu")
        ids = source.tokenizer.encode("abcd <end> \ud800\u00e9")
        source.tokenizer.decode(ids)
        source.tokenizer.has_token_V(source.spec.vocab_size)
        assert source.tokenizer.end_of_turn_id in source.tokenizer.stop_ids
        if source.chat_template is not None:
            source.chat_template.render(MESSAGES)
    except UserError as error:
        assert_sentence(str(error))


def assert_sentence(text: str) -> None:
    assert 20 < len(text) < 1500, text
    assert text.rstrip().endswith((".", "?")), text


@USE
@given(data=st.data())
def test_damaged_json(tiny_folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(JSON_FILES))
    path = tiny_folder / name
    whole = path.read_bytes()
    path.write_bytes(data.draw(damaged_json(json.loads(whole))))
    try:
        use(tiny_folder)
    finally:
        path.write_bytes(whole)


@USE
@given(data=st.data())
def test_damaged_index(tiny_folder: Path, data: st.DataObject) -> None:
    index = {"metadata": {"total_size": 1}, "weight_map": {"model.norm.weight": "model.safetensors"}}
    (tiny_folder / "model.safetensors.index.json").write_bytes(data.draw(damaged_json(index)))
    use(tiny_folder)


@pytest.mark.parametrize("file", ["../tiny/model.safetensors", "/etc/passwd", "", ".", "a/b", "\0", 5, None, ["a"]])
def test_an_index_names_files_of_its_folder_alone(tiny_folder: Path, file: Any) -> None:
    index = {"weight_map": {"model.norm.weight": file}}
    (tiny_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="names files that are not in its folder"):
        open_source(str(tiny_folder))


def test_weights_cut_anywhere(tiny_folder: Path) -> None:
    path = tiny_folder / "model.safetensors"
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for size in [*range(0, header, 37), header, header + 1, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"model.safetensors \([\d,]+ bytes\) is not a whole safetensors file"):
            open_source(str(tiny_folder))


@USE
@given(data=st.data())
def test_damaged_weights(tiny_folder: Path, data: st.DataObject) -> None:
    path = tiny_folder / "model.safetensors"
    whole = path.read_bytes()
    length = 8 + struct.unpack("<Q", whole[:8])[0]
    path.write_bytes(data.draw(damaged_bytes(whole[:length])) + whole[length:])
    try:
        use(tiny_folder)
    finally:
        path.write_bytes(whole)


@USE
@given(data=st.data())
def test_a_header_of_weights_that_lies(tiny_folder: Path, data: st.DataObject) -> None:
    """Types, shapes and offsets that are JSON, and wrong."""
    path = tiny_folder / "model.safetensors"
    whole = path.read_bytes()
    length = 8 + struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:length])
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(header.keys() - {"__metadata__"})))
        entry = {
            "dtype": data.draw(st.sampled_from(["F32", "F8_E4M3", "F4", "F6_E2M3", "BOOL", "U64", "C64", "X"])),
            "shape": data.draw(st.lists(st.sampled_from(WORDS), max_size=5)),
            "data_offsets": data.draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=2)),
        }
        header[name] = entry
        made = json.dumps(header).encode()
    else:
        made = data.draw(damaged_json(header))
    path.write_bytes(struct.pack("<Q", len(made)) + made + whole[length:])
    try:
        use(tiny_folder)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.bool, torch.complex64])
def test_only_plain_floats_are_weights(tiny_folder: Path, dtype: torch.dtype) -> None:
    path = tiny_folder / "model.safetensors"
    save_file({"model.norm.weight": torch.ones(32).to(dtype)}, path)
    shutil.copy(path, tiny_folder / "other.safetensors")
    reader = open_reader(tiny_folder)
    with pytest.raises(UserError, match=f"is of type {dtype}; expected"):
        reader.tensor("model.norm.weight")


def open_reader(folder: Path) -> Any:
    from grpo_zero.checkpoint.hf import SafetensorsReader

    return SafetensorsReader(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 10**12},
        {"hidden_size": 10**400},
        {"rope_theta": 10**400},
        {"rms_norm_eps": float("inf")},
        {"rope_scaling": [1]},
        {"layer_types": 5},
        {"model_type": []},
        {"tie_word_embeddings": "yes"},
    ],
)
def test_a_config_that_asks_for_the_impossible(tiny_folder: Path, changes: dict[str, Any]) -> None:
    path = tiny_folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=r"config.json .* says "):
        open_source(str(tiny_folder))


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_nested_without_end(tiny_folder: Path, name: str) -> None:
    (tiny_folder / name).write_text("[" * 200_000)
    with pytest.raises(UserError, match=f"{name} in .*"):
        open_source(str(tiny_folder))
