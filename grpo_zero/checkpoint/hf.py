"""Read a Hugging Face model folder: config.json, tokenizer files, safetensors, whole or in shards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from grpo_zero.checkpoint.raw import RawCheckpoint
from grpo_zero.errors import UserError
from grpo_zero.text.tokenizer import read_files, read_json

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_FILE_NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def read_folder(folder: Path, *, weights: bool = True) -> RawCheckpoint:
    """The parts of a model folder; the tensors are opened, not read.

    Raises ``UserError`` for a missing or unreadable file. With ``weights`` false there may be none.
    """
    files = read_files(folder)
    if "config.json" not in files:
        raise UserError(
            f"There is no config.json in {folder}; expected a Hugging Face model folder with "
            f"config.json, tokenizer.json and {SINGLE_FILE}: check the path, or give a hub id such "
            f"as Qwen/Qwen2.5-0.5B-Instruct."
        )
    return RawCheckpoint(
        origin=str(folder),
        config=read_json(files, "config.json", str(folder)),
        files=files,
        reader=SafetensorsReader(folder) if weights else None,
    )


class SafetensorsReader:
    """Tensors of a folder's safetensors files, read one at a time (a ``TensorReader``)."""

    def __init__(self, folder: Path) -> None:
        """Open every file's header. Raises ``UserError`` for a missing or damaged file."""
        self._folder = folder
        self._handles: dict[str, Any] = {}
        if (folder / INDEX_FILE).is_file():
            self._file_of = self._read_index()
        elif (folder / SINGLE_FILE).is_file():
            self._file_of = dict.fromkeys(self._open(SINGLE_FILE).keys(), SINGLE_FILE)
        else:
            raise UserError(_no_weights(folder))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        file_name = self._file_of[name]
        try:
            return tuple(self._open(file_name).get_slice(name).get_shape())
        except SafetensorError as error:
            raise self._damaged(file_name, error) from error

    def tensor(self, name: str) -> Tensor:
        file_name = self._file_of[name]
        try:
            tensor = self._open(file_name).get_tensor(name)
        except SafetensorError as error:
            raise self._damaged(file_name, error) from error
        if tensor.dtype not in _DTYPES:
            raise UserError(
                f"{name} in {self._folder / file_name} is of type {tensor.dtype}; expected "
                f"float32, float16 or bfloat16: take a model that is not quantised."
            )
        return tensor

    def _read_index(self) -> dict[str, str]:
        content = {INDEX_FILE: (self._folder / INDEX_FILE).read_bytes()}
        weight_map = read_json(content, INDEX_FILE, str(self._folder)).get("weight_map")
        if not isinstance(weight_map, Mapping):
            raise UserError(
                f"{INDEX_FILE} in {self._folder} has no weight_map; expected one from tensor to "
                f"file: download that file again."
            )
        if not all(isinstance(file, str) and _FILE_NAME.fullmatch(file) for file in weight_map.values()):
            raise UserError(
                f"{INDEX_FILE} in {self._folder} names files that are not in its folder; expected names such as "
                f"model-00001-of-00002.safetensors: download that file again."
            )
        held = {file: frozenset(self._open(file).keys()) for file in sorted(set(weight_map.values()))}
        # A tensor that the index promises and its shard lacks is left out here, and missed later.
        return {name: file for name, file in weight_map.items() if name in held[file]}

    def _open(self, file_name: str) -> Any:
        if file_name not in self._handles:
            path = self._folder / file_name
            if not path.is_file():
                raise UserError(
                    f"{path} is missing, and {INDEX_FILE} names it; expected every shard in the "
                    f"folder: download it again."
                )
            try:
                self._handles[file_name] = safe_open(path, framework="pt")
            except SafetensorError as error:
                raise self._damaged(file_name, error) from error
        return self._handles[file_name]

    def _damaged(self, file_name: str, error: SafetensorError) -> UserError:
        size = (self._folder / file_name).stat().st_size
        return UserError(
            f"{self._folder / file_name} ({size:,} bytes) is not a whole safetensors file "
            f"({error}); it was cut off or damaged: download it again."
        )


def _no_weights(folder: Path) -> str:
    pickled = sorted(path.name for path in folder.glob("*.bin"))
    given = f"only {pickled[0]}" if pickled else f"no {SINGLE_FILE}"
    return (
        f"There is {given} in {folder}; expected {SINGLE_FILE} or {INDEX_FILE} with its shards "
        f"(pickled weights can run code and are not read): download the safetensors files of the "
        f"model."
    )
