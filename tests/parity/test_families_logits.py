"""Our decoder against transformers: the same tiny random model of every family, both ways on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.save import save_folder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

CASES: dict[str, dict[str, Any]] = {
    "qwen2 tied": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2 untied": {"model_type": "qwen2", "tie_word_embeddings": False},
    "qwen3 tied, wide heads": {"model_type": "qwen3", "tie_word_embeddings": True, "head_dim": 32},
    "qwen3 with biases": {"model_type": "qwen3", "attention_bias": True, "head_dim": 16},
    "llama untied": {"model_type": "llama", "tie_word_embeddings": False},
    "llama 3 scaling": {
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_parameters": LLAMA3,
    },
    "llama with biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama all heads": {"model_type": "llama", "num_key_value_heads": 6},
}


def reference_model(case: str) -> transformers.PreTrainedModel:
    """A random model of transformers whose biases and norms are random too."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**{**SHAPE, **CASES[case]})
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def write_tokenizer(folder: Path) -> None:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 4, "content": "<end>", "special": True, **flags}],
        "model": {"type": "BPE", "vocab": dict(zip("abcd", range(4), strict=True)), "merges": []},
    }
    config = {
        "eos_token": "<end>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": "{{ messages[0].content }}",
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def our_logits(decoder: Decoder, tokens_T: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        hidden_TE = decoder(tokens_T, torch.arange(len(tokens_T)), DenseCausal())
        return decoder.logits(hidden_TE)


def their_logits(model: transformers.PreTrainedModel, tokens_T: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens_T[None]).logits[0]


@pytest.mark.parametrize("shard_size", ["5GB", "60KB"])
@pytest.mark.parametrize("case", CASES)
def test_logits_agree_and_survive_a_round_trip(tmp_path: Path, case: str, shard_size: str) -> None:
    model = reference_model(case)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    model.save_pretrained(theirs, max_shard_size=shard_size)
    write_tokenizer(theirs)
    assert (theirs / "model.safetensors.index.json").exists() == (shard_size == "60KB")

    source = open_source(str(theirs))
    decoder = load_decoder(source, dtype=torch.float32, device="cpu")
    assert decoder.spec.num_parameters == model.num_parameters()
    tokens_T = torch.randint(SHAPE["vocab_size"], (100,))
    expected_TV = their_logits(model, tokens_T)
    assert expected_TV.std() > 0.3  # logits that say something
    torch.testing.assert_close(our_logits(decoder, tokens_T), expected_TV, atol=1e-4, rtol=0)

    save_folder(
        ours,
        dict(decoder.named_parameters()),
        decoder.spec,
        config=source.config,
        tokenizer=source.tokenizer,
        max_shard_bytes=60_000 if shard_size == "60KB" else 10**9,
    )
    again = transformers.AutoModelForCausalLM.from_pretrained(ours).eval()
    assert again.dtype == torch.float32
    assert torch.equal(their_logits(again, tokens_T), expected_TV)
    tokenizer = transformers.AutoTokenizer.from_pretrained(ours)
    assert tokenizer("abcd<end>")["input_ids"] == source.tokenizer.encode("abcd<end>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"
    assert again.generation_config.eos_token_id == sorted(source.tokenizer.stop_ids)
    assert 4 in source.tokenizer.stop_ids


def test_trained_head_over_a_tied_config(tmp_path: Path) -> None:
    """Fault P04: head and embedding differ, the config says tied; logits are kept either way."""
    model = reference_model("qwen2 untied")
    model.save_pretrained(tmp_path / "theirs")
    write_tokenizer(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tie_word_embeddings": True}))

    source = open_source(str(tmp_path / "theirs"))
    decoder = load_decoder(source, dtype=torch.float32, device="cpu")
    tokens_T = torch.randint(SHAPE["vocab_size"], (20,))
    expected_TV = their_logits(model, tokens_T)
    torch.testing.assert_close(our_logits(decoder, tokens_T), expected_TV, atol=1e-4, rtol=0)
    save_folder(
        tmp_path / "ours",
        dict(decoder.named_parameters()),
        decoder.spec,
        config=source.config,
        tokenizer=source.tokenizer,
    )
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert torch.equal(their_logits(again, tokens_T), expected_TV)
