"""A tiny model folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from helpers.tiny import TINY_LLAMA_CONFIG

from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.save import save_folder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.model.decoder import Decoder

TINY_CONFIG = {**TINY_LLAMA_CONFIG, "tie_word_embeddings": True, "made_up_key": "kept"}


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture
def bare_folder(tmp_path: Path) -> Path:
    """A tiny model's config and tokenizer (letters a-d and an end token), without weights."""
    folder = tmp_path / "bare"
    folder.mkdir()
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 4, "content": "<end>", "special": True, **flags}],
        "model": {"type": "BPE", "vocab": dict(zip("abcd", range(4), strict=True)), "merges": []},
    }
    write_json(folder / "tokenizer.json", tokenizer)
    tokenizer_config = {
        "eos_token": "<end>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": "{{ messages[0].content }}",
    }
    write_json(folder / "tokenizer_config.json", tokenizer_config)
    write_json(folder / "generation_config.json", {"top_k": 20, "eos_token_id": [4, 3]})
    write_json(folder / "config.json", TINY_CONFIG)
    return folder


@pytest.fixture
def tiny_decoder(bare_folder: Path) -> Decoder:
    """Random weights for ``bare_folder``, float32."""
    source = open_source(str(bare_folder), weights=False)
    return load_decoder(source, dtype=torch.float32, device="cpu", random_init_seed=1)


@pytest.fixture
def tiny_folder(bare_folder: Path, tiny_decoder: Decoder, tmp_path: Path) -> Path:
    """A whole tiny model folder."""
    source = open_source(str(bare_folder), weights=False)
    state = dict(tiny_decoder.named_parameters())
    save_folder(
        tmp_path / "tiny",
        state,
        tiny_decoder.spec,
        config=source.config,
        tokenizer=source.tokenizer,
        generation_config=source.generation_config,
    )
    return tmp_path / "tiny"
