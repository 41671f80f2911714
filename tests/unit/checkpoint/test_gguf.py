"""GGUF files written here: names, q and k rows, RoPE divisors and tokenizers come back right."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from grpo_zero.checkpoint.gguf_tokenizer import tokenizer_files
from grpo_zero.checkpoint.source import open_source
from grpo_zero.errors import UserError
from grpo_zero.model.families import hf_shapes, spec_from_config
from grpo_zero.text.tokenizer import Tokenizer

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
TOKENS = ["a", "b", "c", "ab", "<end>", "<mark>", "[PAD6]", "[PAD7]"]
TOKEN_TYPES = [1, 1, 1, 1, 3, 4, 5, 5]

PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
}


def gguf_name(hf_name: str) -> str:
    for theirs, ours in PARTS.items():
        hf_name = hf_name.replace(f"{theirs}.", f"{ours}.")
    return hf_name


def neighbours_rotate(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """llama.cpp's `permute` of q and k rows."""
    halves = rows.reshape(num_heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def write_gguf(
    path: Path,
    family: str,
    tensors: dict[str, np.ndarray],
    extra: dict[str, np.ndarray] | None = None,
    pre: str = "smollm",
) -> None:
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_layer_norm_rms_eps(SIZES["rms_norm_eps"])
    writer.add_rope_freq_base(500000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types(TOKEN_TYPES)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(4)
    for name, values in tensors.items():
        writer.add_tensor(gguf_name(name), values)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_tensors(family: str) -> dict[str, np.ndarray]:
    shapes = hf_shapes(spec_from_config({**SIZES, "model_type": family}))
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_tensors_come_back_under_their_names(tmp_path: Path, family: str) -> None:
    tensors = random_tensors(family)
    stored = dict(tensors)
    if family == "llama":
        for name in tensors:
            for part, key in (
                ("q_proj", "num_attention_heads"),
                ("k_proj", "num_key_value_heads"),
            ):
                if part in name:
                    stored[name] = neighbours_rotate(tensors[name], SIZES[key])
    write_gguf(tmp_path / "model.gguf", family, stored)
    source = open_source(str(tmp_path / "model.gguf"))
    assert source.names == tensors.keys()
    for name, values in tensors.items():
        assert torch.equal(source.tensor(name), torch.from_numpy(values)), name
    assert source.spec.norm_eps == 1e-6
    assert source.spec.rope_theta == 500000.0
    assert source.spec.qkv_bias == (family == "qwen2")


def test_tokens_special_added_and_unused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", "qwen2", random_tensors("qwen2"))
    tokenizer = open_source(str(tmp_path / "model.gguf")).tokenizer
    assert tokenizer.has_token_V(8).tolist() == 6 * [True] + 2 * [False]
    assert tokenizer.stop_ids == {4}
    assert tokenizer.encode("abc<mark><end>") == [3, 2, 5, 4]


def llama3_divisors(factor: float, low: float = 1.0) -> np.ndarray:
    """As the converter computes them for heads of size 8, wavelength by wavelength."""
    divisors = []
    for exponent in np.arange(0, 8, 2) / 8:
        wavelength = 2 * np.pi * 500000.0**exponent
        if wavelength < 8192 / 4.0:
            divisors.append(1.0)
        elif wavelength > 8192 / low:
            divisors.append(factor)
        else:
            smooth = (8192 / wavelength - low) / (4.0 - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


def test_llama_3_scaling_is_read_off_its_divisors(tmp_path: Path) -> None:
    extra = {"rope_freqs.weight": llama3_divisors(32.0)}
    write_gguf(tmp_path / "model.gguf", "llama", random_tensors("llama"), extra)
    scaling = open_source(str(tmp_path / "model.gguf")).spec.rope_scaling
    assert scaling is not None
    assert (scaling.factor, scaling.low_freq_factor, scaling.original_context) == (32.0, 1.0, 8192)


@pytest.mark.parametrize(
    ("family", "extra", "pre", "expected"),
    [
        ("llama", {"rope_freqs.weight": np.float32([1, 2, 3, 4])}, "smollm", "is not Llama 3's"),
        ("llama", {"blk.0.odd.weight": np.ones(4, np.float32)}, "smollm", "blk.0.odd.weight, which"),
        ("llama", {}, "gemma", "pre 'gemma'; expected model gpt2 and pre gpt-2, smollm"),
        ("mamba", {}, "smollm", "architecture 'mamba'; expected one of"),
    ],
)
def test_what_is_not_supported_is_refused(
    tmp_path: Path, family: str, extra: dict[str, np.ndarray], pre: str, expected: str
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, family, random_tensors("llama"), extra, pre=pre)
    with pytest.raises(UserError, match=expected):
        open_source(str(path))


def test_a_cut_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", random_tensors("llama"))
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) // 8, 200, 30):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="is not a whole GGUF file"):
            open_source(str(path))


@pytest.mark.parametrize(("name", "pre"), [("smollm2", "smollm"), ("qwen2.5", "qwen2")])
def test_tokenizers_from_metadata_give_the_golden_ids(shared_data: Path, name: str, pre: str) -> None:
    """The metadata that a converter writes for a published tokenizer, and its golden ids."""
    folder = shared_data / "tokenizers"
    content = json.loads(lzma.decompress((folder / name / "tokenizer.json.xz").read_bytes()))
    goldens = json.loads((folder / "goldens.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer(tokenizer_files(metadata_of(content, pre), "test"), origin="test")
    ids = [tokenizer.encode(text) for text in goldens["strings"]]
    assert ids == goldens["encodings"][name]


def metadata_of(content: dict[str, Any], pre: str) -> dict[str, Any]:
    special = {token["id"]: token for token in content["added_tokens"]}
    vocabulary = {token_id: token for token, token_id in content["model"]["vocab"].items()}
    vocabulary |= {token_id: token["content"] for token_id, token in special.items()}
    ids = range(len(vocabulary) + 10)  # and rows without a token
    kinds = [(3 if special[i]["special"] else 4) if i in special else 1 for i in vocabulary]
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    by_id = sorted(zip(vocabulary, kinds, strict=True))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [vocabulary.get(i, f"[PAD{i}]") for i in ids],
        "tokenizer.ggml.token_type": [kind for _, kind in by_id] + 10 * [5],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": 0,
    }
