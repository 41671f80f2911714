"""Golden ids, stop ids, ids with a token, and a sentence for every broken file."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_zero.errors import UserError
from grpo_zero.text.tokenizer import Tokenizer

Load = Callable[[str], Tokenizer]
NAMES = ("qwen2.5", "qwen3", "smollm2")


def tiny_files(**changes: dict) -> dict[str, bytes]:
    """A tokenizer of the letters a-d, one end token, and the given config files."""
    vocab = {letter: index for index, letter in enumerate("abcd")}
    special = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 4, "content": "<end>", **special}],
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": {"eos_token": "<end>"}}
    renamed = {name.replace("_json", ".json"): value for name, value in changes.items()}
    return {name: json.dumps(value).encode() for name, value in {**files, **renamed}.items()}


@pytest.mark.parametrize("name", NAMES)
def test_golden_ids(golden_tokenizer: Load, goldens: dict, name: str) -> None:
    tokenizer = golden_tokenizer(name)
    assert [tokenizer.encode(text) for text in goldens["strings"]] == goldens["encodings"][name]


@pytest.mark.parametrize("name", NAMES)
def test_decoding_gives_the_normalised_text_back(golden_tokenizer: Load, goldens: dict, name: str) -> None:
    tokenizer = golden_tokenizer(name)
    for text in goldens["strings"]:
        expected = text if name == "smollm2" else unicodedata.normalize("NFC", text)
        assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_qwen_stops_on_end_of_turn_and_end_of_text(golden_tokenizer: Load) -> None:
    """T01, T03: a base model that never learned the one end still ends with the other."""
    assert golden_tokenizer("qwen2.5").stop_ids == {151643, 151645}
    assert golden_tokenizer("qwen3").stop_ids == {151643, 151645}
    assert golden_tokenizer("smollm2").stop_ids == {0, 2}


def test_stop_ids_unite_all_files_and_leave_out_ids_without_a_token() -> None:
    files = tiny_files(config_json={"eos_token_id": 1}, generation_config_json={"eos_token_id": [2, 3, 77]})
    assert Tokenizer(files, origin="test").stop_ids == {1, 2, 3, 4}


def test_padding_rows_have_no_token(golden_tokenizer: Load) -> None:
    has_token_V = golden_tokenizer("qwen2.5").has_token_V(151_936)
    assert has_token_V.shape == (151_936,)
    assert has_token_V[:151_665].all()
    assert not has_token_V[151_665:].any()
    assert golden_tokenizer("qwen3").vocab_size == 151_669


def test_think_is_one_token_in_qwen3_only_and_survives_decoding(golden_tokenizer: Load) -> None:
    assert golden_tokenizer("qwen3").encode("<think>") == [151_667]
    assert golden_tokenizer("qwen3").decode([151_667]) == "<think>"
    assert len(golden_tokenizer("qwen2.5").encode("<think>")) > 1


def test_a_completion_is_decoded_without_its_stop_id_only() -> None:
    tokenizer = Tokenizer(tiny_files(), origin="test")
    assert tokenizer.decode([0, 4]).endswith("<end>")
    assert "<end>" not in tokenizer.decode_completion([0, 4])
    assert tokenizer.decode_completion([0, 1]) == tokenizer.decode([0, 1])
    assert tokenizer.decode_completion([]) == ""


def test_truncation_in_the_file_is_ignored() -> None:
    files = tiny_files()
    content = json.loads(files["tokenizer.json"])
    content["truncation"] = {
        "max_length": 2,
        "stride": 0,
        "strategy": "LongestFirst",
        "direction": "Left",
    }
    files["tokenizer.json"] = json.dumps(content).encode()
    assert Tokenizer(files, origin="test").encode("abcdabcd") == [0, 1, 2, 3] * 2


def test_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    for name, content in tiny_files(config_json={"eos_token_id": 1}).items():
        (tmp_path / name).write_bytes(content)
    assert Tokenizer.from_folder(tmp_path).files == tiny_files()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "no tokenizer.json in HERE"),
        ({"tokenizer.json": b'{"version": "1.0", "mod'}, "tokenizer.json in HERE can't be read"),
        ({"tokenizer.json": b"\xff\xfe"}, "tokenizer.json in HERE can't be read"),
        (
            tiny_files() | {"tokenizer_config.json": b"{"},
            "tokenizer_config.json in HERE is not readable",
        ),
        (tiny_files() | {"generation_config.json": b"[]"}, "holds a list where a JSON object"),
        (tiny_files(tokenizer_config_json={}), "names no token that ends an answer"),
    ],
)
def test_broken_files_are_told_by_name(files: dict[str, bytes], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        Tokenizer(files, origin="HERE")


def test_a_tokenizer_without_tokens_is_refused() -> None:
    empty = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    with pytest.raises(UserError, match=r"can't be read \(it has no tokens\); copy or download"):
        Tokenizer(tiny_files(tokenizer_json=empty), origin="test")


def test_an_end_token_may_be_an_object() -> None:
    files = tiny_files(tokenizer_config_json={"eos_token": {"content": "<end>", "special": True}})
    assert Tokenizer(files, origin="test").eos_token == "<end>"
