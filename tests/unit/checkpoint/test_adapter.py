"""Adapter folders: what is written loads again, and what is damaged or not ours is refused in one sentence."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.damage import damaged_bytes, damaged_json
from helpers.tiny import tiny_decoder
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.checkpoint.adapter import CONFIG_FILE, WEIGHTS_FILE, load_adapter, save_adapter
from grpo_zero.config import LoraConfig
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.lora import adapter_tensors, add_adapters

LORA = LoraConfig(rank=2, alpha=4.0, targets=("q_proj", "down_proj"))


def adapted(lora: LoraConfig = LORA) -> Decoder:
    decoder = tiny_decoder("llama")
    add_adapters(decoder, rank=lora.rank, alpha=lora.alpha, targets=frozenset(lora.targets), rslora=lora.rslora)
    return decoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    decoder = adapted()
    with torch.no_grad():
        for index, (_, tensor) in enumerate(sorted(adapter_tensors(decoder).items())):
            tensor.fill_(index + 1)
    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    save_adapter(decoder, LORA, "base", folder)
    return folder


def edited(folder: Path, target: Path, changes: dict[str, Any]) -> Path:
    target.mkdir()
    (target / WEIGHTS_FILE).write_bytes((folder / WEIGHTS_FILE).read_bytes())
    (target / CONFIG_FILE).write_text(json.dumps(json.loads((folder / CONFIG_FILE).read_text()) | changes))
    return target


def test_what_is_saved_loads_again(folder: Path) -> None:
    decoder = adapted()
    load_adapter(decoder, LORA, folder)
    for index, (_, tensor) in enumerate(sorted(adapter_tensors(decoder).items())):
        assert (tensor == index + 1).all()
    config = json.loads((folder / CONFIG_FILE).read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (2, 4.0, "base")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"use_dora": True}, "has use_dora True, which is not computed here"),
        ({"rank_pattern": {"a": 1}}, "has rank_pattern {'a': 1}, which"),
        ({"bias": "all"}, "has trained biases"),
        ({"peft_type": "IA3"}, "no LoRA adapter's"),
        ({"r": 3}, "lora.rank is 2, but the adapter in .* has 3"),
        ({"lora_alpha": "much"}, "lora.alpha is 4.0, but .* has 'much'"),
        ({"use_rslora": True}, "lora.rslora is False, but .* has True"),
        ({"target_modules": ["q_proj"]}, "lora.targets is"),
        ({"target_modules": 5}, "no list of names as target_modules"),
        ({"target_modules": [1, "a"]}, "no list of names as target_modules"),
    ],
)
def test_another_adapter_is_refused(folder: Path, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_adapter(adapted(), LORA, edited(folder, tmp_path / "other", changes))


def test_weights_that_lack_a_tensor(folder: Path, tmp_path: Path) -> None:
    wider = replace(LORA, targets=(*LORA.targets, "k_proj"))
    other = edited(folder, tmp_path / "other", {"target_modules": list(wider.targets)})
    with pytest.raises(UserError, match=r"does not fit this model: .*k_proj.* is missing or has another shape"):
        load_adapter(adapted(wider), wider, other)


def test_no_adapter_there(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UserError, match=f"holds no {CONFIG_FILE}"):
        load_adapter(adapted(), LORA, tmp_path)
    other = edited(folder, tmp_path / "other", {})
    (other / WEIGHTS_FILE).unlink()
    with pytest.raises(UserError, match=f"{WEIGHTS_FILE} cannot be read"):
        load_adapter(adapted(), LORA, other)


@given(data=st.data())
def test_damaged_adapters(folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    other = edited(folder, tmp_path_factory.mktemp("damaged") / "adapter", {})
    if data.draw(st.booleans()):
        path, whole = other / CONFIG_FILE, (folder / CONFIG_FILE).read_text()
        path.write_bytes(data.draw(damaged_json(json.loads(whole))))
    else:
        path, raw = other / WEIGHTS_FILE, (folder / WEIGHTS_FILE).read_bytes()
        length = 8 + struct.unpack("<Q", raw[:8])[0]
        path.write_bytes(data.draw(damaged_bytes(raw[:length])) + raw[length:])
    try:
        load_adapter(adapted(), LORA, other)
    except UserError as error:
        message = str(error)
        assert message.endswith(".")
        assert len(message) < 1000
