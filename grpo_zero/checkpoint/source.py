"""Open a model by whatever names it: folder, GGUF file, packaged model or hub id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from grpo_zero.checkpoint.check import check_tensors
from grpo_zero.checkpoint.gguf import read_gguf
from grpo_zero.checkpoint.hf import read_folder
from grpo_zero.checkpoint.hub import download
from grpo_zero.checkpoint.raw import RawCheckpoint, TensorReader
from grpo_zero.errors import UserError
from grpo_zero.model.families import spec_from_config
from grpo_zero.model.spec import ModelSpec
from grpo_zero.packaged import embedded_folder
from grpo_zero.text.chat import ChatTemplate
from grpo_zero.text.tokenizer import Tokenizer, read_json

KNOWN_ORGANISATIONS = {"qwen": "Qwen", "smollm": "HuggingFaceTB", "llama": "meta-llama"}
"""Start of a bare model name, lower case, to the hub organisation that publishes it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model that has been opened and checked; the weights are read when asked for."""

    origin: str
    """Where it was found, for messages."""
    config: Mapping[str, Any]
    """Its config.json, kept for saving."""
    generation_config: Mapping[str, Any]
    """Its generation_config.json, kept for saving; may be empty."""
    spec: ModelSpec
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    """The one that came with it, or ``None``."""
    reader: TensorReader | None
    """``None`` when it was opened without weights."""

    @property
    def names(self) -> frozenset[str]:
        """Hugging Face names of its tensors; empty when it was opened without weights."""
        return self.reader.names if self.reader else frozenset()

    def tensor(self, hf_name: str) -> Tensor:
        """One tensor on the CPU, in the file's precision (float32 from a GGUF)."""
        if self.reader is None:
            raise ValueError(f"{self.origin} was opened without weights")
        return self.reader.tensor(hf_name)


def open_source(path: str, *, weights: bool = True) -> Source:
    """Open and check a model; no weights are read into memory yet.

    Args:
        path: ``embedded:NAME`` (a folder in this package), a model folder, a ``.gguf`` file, or a hub id
            ``org/name`` (downloaded, or from the local hub cache).
        weights: False to open only config and tokenizer, for a model that starts at random.

    Raises:
        UserError: anything missing, damaged, contradictory or not supported.
    """
    raw = _read(path, weights=weights)
    spec = spec_from_config(raw.config, f"config.json in {raw.origin}")
    if raw.reader is not None:
        spec = check_tensors(raw.reader, spec, raw.origin)
    tokenizer = Tokenizer(raw.files, origin=raw.origin)
    if tokenizer.vocab_size > spec.vocab_size:
        raise UserError(
            f"The tokenizer in {raw.origin} has ids up to {tokenizer.vocab_size - 1}; expected "
            f"less than the model's vocab_size {spec.vocab_size}: take the tokenizer that belongs "
            f"to the model."
        )
    return Source(
        origin=raw.origin,
        config=raw.config,
        generation_config=read_json(raw.files, "generation_config.json", raw.origin),
        spec=spec,
        tokenizer=tokenizer,
        chat_template=ChatTemplate.of_tokenizer(tokenizer),
        reader=raw.reader,
    )


def _read(path: str, *, weights: bool) -> RawCheckpoint:
    packaged = embedded_folder(path)
    if packaged is not None:
        return read_folder(packaged, weights=weights)
    local = Path(path).expanduser()
    if local.is_dir():
        return read_folder(local, weights=weights)
    if local.suffix == ".gguf" and local.is_file():
        return read_gguf(local, weights=weights)
    if local.is_file():
        raise UserError(
            f"{path} is a file; expected a model folder, a .gguf file, a hub id, or embedded:NAME: "
            f"give the folder that holds the model's config.json."
        )
    if local.suffix != ".gguf" and re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", path):
        return read_folder(download(path, weights=weights), weights=weights)
    raise UserError(_nothing_there(path))


def _nothing_there(path: str) -> str:
    """One sentence; a bare model name gets the hub id it most likely means."""
    end = "or run `uv run grpo-zero train`, whose packaged model needs no download."
    organisation = next((org for start, org in KNOWN_ORGANISATIONS.items() if path.lower().startswith(start)), None)
    if organisation and "/" not in path:
        repo_id = f"{organisation}/{path}"
        return (
            f"There is no folder {path!r} here; expected a model folder, a .gguf file, a hub id, "
            f"or embedded:NAME: get it with `hf download {repo_id} --local-dir {path}`, give the "
            f"hub id {repo_id} instead, {end}"
        )
    return (
        f"There is nothing at {path!r}; expected a model folder, a .gguf file, a hub id such as "
        f"Qwen/Qwen2.5-0.5B-Instruct, or embedded:NAME: check the path, {end}"
    )
