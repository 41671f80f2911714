"""One sentence, with the file or tensor by name, for everything that can be wrong with a model."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors
from safetensors.torch import load_file, save_file

from grpo_zero.checkpoint import hub
from grpo_zero.checkpoint.source import open_source
from grpo_zero.errors import UserError

WEIGHTS = "model.safetensors"
NORM = "model.norm.weight"


def edit_tensors(folder: Path, edit: Callable[[dict], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS)


def cut(path: Path, num_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:num_bytes])


def shrink_vocabulary(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 3}))
    edit_tensors(folder, lambda t: t.update({"model.embed_tokens.weight": torch.ones(3, 32)}))


def name_a_missing_shard(folder: Path) -> None:
    index = {"weight_map": {NORM: "model-00001-of-00009.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def promise_a_tensor(folder: Path) -> None:
    names = load_file(folder / WEIGHTS).keys()
    edit_tensors(folder, lambda t: t.pop(NORM))
    index = {"weight_map": dict.fromkeys(names, WEIGHTS)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), r"no config.json in .*tiny; expected"),
    "cut config": (lambda f: cut(f / "config.json", 20), "config.json in .* is not readable JSON"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer.json in"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "no model.safetensors in"),
    "pickled weights": (
        lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"),
        "only pytorch_model.bin in .*can run code",
    ),
    "empty weights": (lambda f: cut(f / WEIGHTS, 0), r"model.safetensors \(0 bytes\) is not a whole"),
    "cut header": (lambda f: cut(f / WEIGHTS, 100), r"\(100 bytes\) is not a whole"),
    "cut values": (lambda f: cut(f / WEIGHTS, 9000), r"\(9,000 bytes\) is not a whole"),
    "missing tensor": (
        lambda f: edit_tensors(f, lambda t: t.pop(NORM)),
        "lacks the tensor model.norm.weight; expected",
    ),
    "extra tensor": (
        lambda f: edit_tensors(f, lambda t: t.update({"lora_a.weight": torch.ones(1)})),
        "holds the tensor lora_a.weight, which",
    ),
    "wrong shape": (
        lambda f: edit_tensors(f, lambda t: t.update({NORM: torch.ones(31)})),
        r"model.norm.weight in .* has shape \[31\]; expected \[32\]",
    ),
    "missing shard": (name_a_missing_shard, "model-00001-of-00009.safetensors is missing"),
    "tensor not in its shard": (promise_a_tensor, "lacks the tensor model.norm.weight"),
    "vocabulary": (shrink_vocabulary, "ids up to 4; expected less than the model's vocab_size 3"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_folder_is_told_by_name(tiny_folder: Path, fault: str) -> None:
    damage, expected = FAULTS[fault]
    damage(tiny_folder)
    with pytest.raises(UserError, match=expected):
        open_source(str(tiny_folder))


def test_quantised_weights_are_refused_when_read(tiny_folder: Path) -> None:
    edit_tensors(tiny_folder, lambda t: t.update({NORM: torch.ones(32, dtype=torch.int8)}))
    with pytest.raises(UserError, match=r"model.norm.weight in .* is of type torch.int8"):
        open_source(str(tiny_folder)).tensor(NORM)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Qwen2.5-3B-Instruct", r"`hf download Qwen/Qwen2.5-3B-Instruct --local-dir .*uv run grpo-zero"),
        ("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("some-model", "nothing at 'some-model'; expected a model folder"),
        ("/nowhere/at/all", "nothing at '/nowhere/at/all'"),
        ("nowhere/model.gguf", "nothing at 'nowhere/model.gguf'"),
        ("embedded:nonsense", "no packaged model 'nonsense'; expected one of"),
    ],
)
def test_a_path_to_nothing_says_what_to_do(path: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        open_source(path)


def test_a_file_in_place_of_a_folder(tiny_folder: Path) -> None:
    with pytest.raises(UserError, match="is a file; expected a model folder"):
        open_source(str(tiny_folder / "config.json"))


@pytest.mark.parametrize("size", [0, 3, 100])
def test_a_damaged_gguf(tmp_path: Path, size: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes((b"GGUF" + bytes([3, 0, 0, 0]) + bytes([9] * 200))[:size])
    with pytest.raises(UserError, match="is not a whole GGUF file"):
        open_source(str(path))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.LocalEntryNotFoundError("offline"), "can't be downloaded .*hf download org/name"),
        (ConnectionError("no route"), r"can't be downloaded \(ConnectionError\)"),
        (errors.HFValidationError("bad id"), "There is no model 'org/name'"),
    ],
)
def test_a_hub_that_can_not_be_reached(monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=expected):
        open_source("org/name")


def test_a_hub_id_opens_the_downloaded_folder(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    asked = {}

    def fake(repo_id: str, allow_patterns: list[str]) -> str:
        asked[repo_id] = allow_patterns
        return str(tiny_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    assert open_source("org/name").spec.width == 32
    assert asked == {"org/name": list(hub.PATTERNS)}


def test_a_packaged_model(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    package = tiny_folder.parent
    (package / "embedded").mkdir()
    tiny_folder.rename(package / "embedded" / "tiny")
    monkeypatch.setattr(importlib.resources, "files", lambda _: package)
    assert open_source("embedded:tiny").spec.width == 32
    with pytest.raises(UserError, match=r"'tini'; expected one of tiny: .* Did you mean 'tiny'?"):
        open_source("embedded:tini")
