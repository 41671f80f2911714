"""The tokenizer in a GGUF file's metadata, as the files of a Hugging Face folder."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_zero.errors import UserError

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""``tokenizer.ggml.token_type``: special, added plain text, and padding without a token."""

_GPT2_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}


def _words(digits: str) -> dict[str, Any]:
    """The split of Llama 3 and Qwen; they differ in how many digits stay together."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_GPT2_WORDS],
    "smollm": [{"type": "Digits", "individual_digits": True}, _GPT2_WORDS],
    "qwen2": [_words(r"\p{N}"), _BYTES],
    "llama-bpe": [_words(r"\p{N}{1,3}"), _BYTES],
}
"""``tokenizer.ggml.pre`` to how text is cut before the merges."""

_NORMALIZERS = {"qwen2": {"type": "NFC"}}

_NAMED_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "pad_token": "padding_token_id",
    "unk_token": "unknown_token_id",
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def tokenizer_files(metadata: Mapping[str, Any], origin: str) -> dict[str, bytes]:
    """tokenizer.json, tokenizer_config.json and generation_config.json, name to bytes.

    Raises ``UserError`` for a tokenizer that is not a byte-level BPE, one cut in an unknown way, or a damaged one.
    """
    model, split = (metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if model != "gpt2" or not isinstance(split, str) or split not in _SPLITS:
        raise UserError(
            f"{origin} has a tokenizer of model {reprlib.repr(model)} and pre {reprlib.repr(split)}; expected model gpt2 "
            f"and pre {', '.join(_SPLITS)}: use the model's Hugging Face folder instead."
        )
    _check(metadata, origin)
    tokens: Sequence[str] = metadata["tokenizer.ggml.tokens"]
    content = {
        "tokenizer.json": _tokenizer(metadata, tokens, split),
        "tokenizer_config.json": _config(metadata, tokens),
        "generation_config.json": {"eos_token_id": _end_ids(metadata)},
    }
    return {name: json.dumps(value, ensure_ascii=False).encode("utf-8") for name, value in content.items()}


def _check(metadata: Mapping[str, Any], origin: str) -> None:
    """Raises ``UserError`` unless tokens, types, merges, named ids and template are what their names say."""
    num_tokens = _length(str, metadata.get("tokenizer.ggml.tokens"))
    kinds = metadata.get("tokenizer.ggml.token_type") or None
    faults = {
        "tokenizer.ggml.tokens": not num_tokens,
        "tokenizer.ggml.token_type": kinds is not None and _length(int, kinds) != num_tokens,
        "tokenizer.ggml.merges": _length(str, metadata.get("tokenizer.ggml.merges")) is None,
        "tokenizer.chat_template": not isinstance(metadata.get("tokenizer.chat_template", ""), str),
    }
    for key in (*_NAMED_TOKENS.values(), *_END_KEYS):
        token_id = metadata.get(f"tokenizer.ggml.{key}")
        faults[f"tokenizer.ggml.{key}"] = token_id is not None and not (
            type(token_id) is int and 0 <= token_id < (num_tokens or 0)
        )
    for key, is_wrong in faults.items():
        if is_wrong:
            raise UserError(f"{origin} has no usable {key} ({reprlib.repr(metadata.get(key))}): download it again.")


def _length(kind: type, value: Any) -> int | None:
    """Of a list of that kind; None for anything else."""
    return len(value) if isinstance(value, list) and all(type(element) is kind for element in value) else None


def _tokenizer(metadata: Mapping[str, Any], tokens: Sequence[str], split: str) -> dict[str, Any]:
    kinds = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    added = [
        {
            "id": token_id,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for token_id, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    vocabulary = {
        token: token_id for token_id, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != _UNUSED
    }
    merges = [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": _NORMALIZERS.get(split),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"trim_offsets": True, **step} for step in _SPLITS[split]],
        },
        "post_processor": None,
        "decoder": {"trim_offsets": True, **_GPT2_WORDS},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": split == "llama-bpe",  # Llama 3 takes whole words that are tokens first
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def _config(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for name, key in _NAMED_TOKENS.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}")
        if token_id is not None:
            config[name] = tokens[token_id]
    template = metadata.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


def _end_ids(metadata: Mapping[str, Any]) -> list[int]:
    """Ends of text and of turn, those that the file names."""
    ids = (metadata.get(f"tokenizer.ggml.{key}") for key in _END_KEYS)
    return sorted({token_id for token_id in ids if token_id is not None})
