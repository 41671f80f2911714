"""A GGUF file of any content is read or refused in one sentence, and costs no more memory than its bytes."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from helpers.damage import WORDS, damaged_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpo_zero.checkpoint.gguf_header import GgufError, read_header
from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.errors import UserError

SIZES = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.embedding_length": 8,
    "llama.feed_forward_length": 8,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.context_length": 16,
    "llama.attention.layer_norm_rms_epsilon": 1e-6,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<end>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 3,
    "tokenizer.chat_template": "{{ messages[0].content }}",
}
SHAPES = {
    "token_embd.weight": (4, 8),
    "blk.0.attn_norm.weight": (8,),
    "blk.0.attn_q.weight": (8, 8),
    "blk.0.attn_k.weight": (4, 8),
    "blk.0.attn_v.weight": (4, 8),
    "blk.0.attn_output.weight": (8, 8),
    "blk.0.ffn_norm.weight": (8,),
    "blk.0.ffn_gate.weight": (8, 8),
    "blk.0.ffn_up.weight": (8, 8),
    "blk.0.ffn_down.weight": (8, 8),
    "output_norm.weight": (8,),
}
USE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def typed(value: Any) -> bytes:
    """A value behind its type, as metadata hold it."""
    if isinstance(value, bytes):
        return value  # made by hand
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return (
            struct.pack("<IQ", 10, value)
            if value >= 2**32
            else struct.pack("<Ii", 5, value)
            if value < 0
            else struct.pack("<II", 4, value)
        )
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    kind, pack = (8, text) if value and isinstance(value[0], str) else (5, lambda number: struct.pack("<i", number))
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(pack, value))


def made(
    metadata: dict[str, Any] | None = None,
    tensors: list[tuple[str, tuple[int, ...], int, int]] | None = None,
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    data: bytes | None = None,
) -> bytes:
    """A file written by hand; ``tensors``: name, shape, type and offset, all of a tiny model by default."""
    metadata = SIZES if metadata is None else metadata
    if tensors is None:
        tensors, at = [], 0
        for name, shape in SHAPES.items():
            tensors.append((name, shape, 0, at))
            at += 4 * int(np.prod(shape))
        data = np.random.default_rng(0).normal(size=at // 4).astype("<f4").tobytes() if data is None else data
    out = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(metadata))))
    for key, value in metadata.items():
        out += text(key) + typed(value)
    for name, shape, kind, offset in tensors:
        out += (
            text(name)
            + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            + struct.pack("<IQ", kind, offset)
        )
    return out + bytes(-len(out) % 32) + (data or b"")


WHOLE = made()
HEADER = len(WHOLE) - 4 * sum(int(np.prod(shape)) for shape in SHAPES.values())


def use(path: Path) -> str:
    """Open, load, ask: the sentence it ends in, empty when it works."""
    try:
        source = open_source(str(path))
        load_decoder(source, dtype=torch.float32, device="cpu")
        source.tokenizer.decode(source.tokenizer.encode("abab <end>"))
        if source.chat_template is not None:
            source.chat_template.render([{"role": "user", "content": "a"}])
    except UserError as error:
        return str(error)
    return ""


def test_the_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(WHOLE)
    assert use(path) == ""
    reader = gguf.GGUFReader(path)
    header = read_header(path)
    assert {t.name: tuple(map(int, t.shape[::-1])) for t in reader.tensors} == {t.name: t.shape for t in header.tensors}
    assert [t.data_offset for t in reader.tensors] == [t.start for t in header.tensors]
    assert {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")
    } == header.metadata


def test_every_type_of_value_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kinds = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64", "bool")
    for kind in kinds:
        getattr(writer, f"add_{kind}")(kind, 1)
    writer.add_array("floats", [0.5, 1.5])
    writer.add_array("flags", [True, False])
    writer.add_array("texts", ["a", "é"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    metadata = read_header(path).metadata
    assert [metadata[kind] for kind in kinds] == [1] * 10 + [True]
    assert (metadata["floats"], metadata["flags"], metadata["texts"]) == ([0.5, 1.5], [True, False], ["a", "é"])


def test_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for size in [*range(0, HEADER, 13), HEADER, len(WHOLE) - 1]:
        path.write_bytes(WHOLE[:size])
        assert f"m.gguf ({size:,} bytes) is not a whole GGUF file (" in use(path)


@USE
@given(content=damaged_bytes(WHOLE[:HEADER]))
def test_damaged_anywhere(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content + WHOLE[HEADER:])
    message = use(path)
    assert not message or message.endswith((".", "?"))


VALUES = st.one_of(
    st.sampled_from([word for word in WORDS if word < 2**64]),
    st.sampled_from(
        [-1, True, 0.0, -1.0, float("nan"), float("inf"), 1e38, "", "gpt2", "a", "qwen3", [], [0], [-1, 9], ["a"]]
    ),
    st.lists(st.sampled_from(["a", "b", "a b", "", "\0", "a b c", "<end>"]), max_size=5),
)


@USE
@given(
    changes=st.dictionaries(
        st.sampled_from([*SIZES, "general.alignment", "llama.vocab_size", "llama.rope.scaling.type"]),
        VALUES,
        min_size=1,
        max_size=2,
    )
)
def test_metadata_of_any_value(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(made(SIZES | changes))
    message = use(path)
    assert not message or message.endswith((".", "?"))


@USE
@given(
    name=st.sampled_from([*SHAPES, "rope_freqs.weight", "", "blk.", "output.weight"]),
    shape=st.lists(st.sampled_from(WORDS) | st.integers(0, 64), max_size=6),
    kind=st.sampled_from([*(int(kind) for kind in gguf.GGMLQuantizationType), 4, 99, 2**32 - 1]),
    offset=st.sampled_from(WORDS),
)
def test_tensors_of_any_place(tmp_path: Path, name: str, shape: list[int], kind: int, offset: int) -> None:
    path = tmp_path / "m.gguf"
    tensors = [(other, size, 0, 32 * index) for index, (other, size) in enumerate(SHAPES.items()) if other != name]
    path.write_bytes(made(None, [*tensors, (name, tuple(shape), kind, offset)], data=bytes(4096)))
    assert use(path) != ""  # the others overlap at least


BOMBS = {
    "tensors": (made(counts=(2**60, len(SIZES))), "counts 1152921504606846976 parts"),
    "keys": (made(counts=(0, 2**63)), "counts 9223372036854775808 parts"),
    "list of bytes": (made({"a": struct.pack("<IIQ", 9, 0, 2**62)}, []), "counts 4611686018427387904 parts"),
    "list of texts": (made({"a": struct.pack("<IIQ", 9, 8, 2**40)}, []), "counts 1099511627776 parts"),
    "list of lists": (made({"a": struct.pack("<IIQ", 9, 9, 1)}, []), "list of elements of type 9"),
    "text": (made({"a": struct.pack("<IQ", 8, 2**50)}, []), "counts 1125899906842624 parts"),
    "type": (made({"a": struct.pack("<I", 13)}, []), "value of type 13"),
    "no UTF-8": (made({"a": struct.pack("<IQ", 8, 1) + b"\xff"}, []), "no UTF-8"),
    "axes": (made({}, [("a", (1,) * 5, 0, 0)]), "5 axes"),
    "size": (made({}, [("a", (2**40, 2**40), 0, 0)]), "larger than the file"),
    "alignment": (made({"general.alignment": 0}, []), "power of two"),
    "alignment of 3": (made({"general.alignment": 3}, []), "power of two"),
    "alignment as text": (made({"general.alignment": "32"}, []), "power of two"),
    "two of a name": (made({}, [("a", (1,), 0, 0), ("a", (1,), 0, 32)]), "name stands twice"),
    "version 1": (made(version=1), "version 1"),
    "big-endian": (made(version=3 << 24), "big-endian"),
    "another format": (b"PK\3\4" + WHOLE[4:], "does not begin with GGUF"),
    "empty": (b"", "too short"),
}


@pytest.mark.parametrize(("content", "reason"), BOMBS.values(), ids=BOMBS)
def test_lies_are_found_before_anything_is_made(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    start = time.perf_counter()
    with pytest.raises(GgufError, match=reason):
        read_header(path)
    assert time.perf_counter() - start < 1
    assert "is not a whole GGUF file" in use(path)


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * (text("a") + typed(1)))
    with pytest.raises(GgufError, match="the key 'a' stands twice"):
        read_header(path)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([("a", (8,), 0, 0), ("b", (8,), 0, 31)], "'b' lies over another or past the end"),
        ([("a", (8,), 0, 2**63)], "'a' lies over another or past the end"),
        ([("a", (1025,), 0, 0)], "'a' lies over another or past the end"),
        ([("a", (33,), 2, 0)], "rows that are no whole blocks"),
        ([("a", (32,), 5, 0)], "unknown type 5"),
    ],
)
def test_tensors_that_lie_nowhere(tmp_path: Path, tensors: list[Any], reason: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(made(SIZES, tensors, data=bytes(4096)))
    assert reason in use(path)


@pytest.mark.parametrize("divisors", [[], [0.0] * 2, [float("nan")] * 2, [float("inf")] * 2, [-1.0, 1.0]])
@pytest.mark.parametrize("theta", [10000.0, -1.0, float("nan"), "a"])
def test_rope_divisors_of_any_value(tmp_path: Path, divisors: list[float], theta: Any) -> None:
    path = tmp_path / "m.gguf"
    tensors = [("rope_freqs.weight", (len(divisors),), 0, 0)]
    path.write_bytes(
        made(SIZES | {"llama.rope.freq_base": theta}, tensors, data=np.float32(divisors).tobytes() + bytes(32))
    )
    assert "is not Llama 3's RoPE scaling" in use(path)
