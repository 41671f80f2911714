"""Whatever a tokenizer's files hold, they make a tokenizer that works, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.damage import JUNK, damaged_bytes, damaged_json
from hypothesis import given
from hypothesis import strategies as st

import grpo_zero
from grpo_zero.errors import UserError
from grpo_zero.text.tokenizer import Tokenizer

FOLDER = Path(grpo_zero.__file__).parent / "embedded" / "countdown-tiny"
WHOLE = {
    name: (FOLDER / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
}
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
WORDS = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"
SMALL = {
    "version": "1.0",
    "truncation": {"max_length": 2, "stride": 0, "strategy": "LongestFirst", "direction": "Left"},
    "padding": None,
    "added_tokens": [{"id": 4, "content": "<end>", "special": True, **FLAGS}],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"String": "x"}, "content": ""}],
    },
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": False},
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    },
    "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3},
        "merges": [["a", "b"]],
    },
}
"""One of every part that a published tokenizer has."""
TEXT = "abc abcx \u00e9\u4e16 12345 <end> \ud800\t'S"


def use(files: dict[str, bytes]) -> None:
    try:
        tokenizer = Tokenizer(files, origin="HERE")
        ids = tokenizer.encode(TEXT)
        tokenizer.decode(ids)
        tokenizer.decode_completion(list(range(tokenizer.vocab_size)) if tokenizer.vocab_size < 1000 else ids)
        tokenizer.has_token_V(8)
        assert tokenizer.end_of_turn_id in tokenizer.stop_ids
    except UserError as error:
        message = str(error)
    else:
        return
    assert "HERE" in message
    assert message.endswith(".")


@given(damaged_json(SMALL))
def test_damaged_parts(content: bytes) -> None:
    use(WHOLE | {"tokenizer.json": content})


@given(damaged_bytes(WHOLE["tokenizer.json"]))
def test_damaged_bytes(content: bytes) -> None:
    use(WHOLE | {"tokenizer.json": content})


@given(name=st.sampled_from([*WHOLE, "config.json", "chat_template.json"]), value=st.sampled_from(JUNK))
def test_other_values_in_place_of_a_file(name: str, value: object) -> None:
    use(WHOLE | {name: json.dumps(value).encode()})


@pytest.mark.parametrize(
    "value", [value for value in JUNK if type(value) not in (int, bool, type(None), list)] + [["a"], [[0]], [None]]
)
def test_stop_ids_that_are_none(value: object) -> None:
    files = WHOLE | {"generation_config.json": json.dumps({"eos_token_id": value}).encode()}
    with pytest.raises(UserError, match=r"generation_config.json in HERE has an eos_token_id that is no id"):
        Tokenizer(files, origin="HERE")


def test_lone_surrogates_are_encoded_as_what_they_are_shown_as() -> None:
    tokenizer = Tokenizer(WHOLE, origin="HERE")
    assert tokenizer.encode("1 \ud800 2") == tokenizer.encode("1 \ufffd 2")
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("\U0001f600")
