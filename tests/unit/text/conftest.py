"""The shared tokenizers, unpacked."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_zero.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def golden_tokenizer(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tokenizer]:
    """A shared tokenizer by its folder's name (qwen2.5, qwen3, smollm2), loaded once a session."""
    loaded: dict[str, Tokenizer] = {}

    def load(name: str) -> Tokenizer:
        if name not in loaded:
            source = shared_data / "tokenizers" / name
            folder = tmp_path_factory.mktemp("tokenizer") / name
            folder.mkdir()
            packed = (source / "tokenizer.json.xz").read_bytes()
            (folder / "tokenizer.json").write_bytes(lzma.decompress(packed))
            config = (source / "tokenizer_config.json").read_bytes()
            (folder / "tokenizer_config.json").write_bytes(config)
            loaded[name] = Tokenizer.from_folder(folder)
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def goldens(shared_data: Path) -> dict:
    """goldens.json: strings, their ids, chats and their rendered texts."""
    return json.loads((shared_data / "tokenizers" / "goldens.json").read_text(encoding="utf-8"))
