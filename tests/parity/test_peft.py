"""Adapters against PEFT: logits of the same adapter both ways on disk, and sentences for what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
import transformers
from test_families_logits import CASES, our_logits, reference_model, their_logits, write_tokenizer

from grpo_zero.checkpoint.adapter import load_adapter, save_adapter
from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.config import LoraConfig
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.lora import adapter_tensors, add_adapters

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # PEFT's own
LORA = LoraConfig(rank=4, alpha=12.0)
TOKENS_T = torch.randint(0, 97, (19,), generator=torch.Generator().manual_seed(5))


@pytest.fixture(params=["qwen2 tied", "qwen3 tied, wide heads", "llama with biases"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    assert request.param in CASES
    reference_model(request.param).save_pretrained(tmp_path / "base")
    write_tokenizer(tmp_path / "base")
    return tmp_path / "base"


def decoder_of(folder: Path, lora: LoraConfig) -> Decoder:
    decoder = load_decoder(open_source(str(folder)), dtype=torch.float32, device="cpu")
    add_adapters(decoder, rank=lora.rank, alpha=lora.alpha, targets=frozenset(lora.targets), rslora=lora.rslora)
    return decoder.eval()


def randomize(tensors: dict[str, torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(3)
    for _, tensor in sorted(tensors.items()):
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)


@pytest.mark.parametrize(
    "lora", [LORA, replace(LORA, rslora=True, targets=("q_proj", "v_proj", "up_proj"))], ids=["all", "some"]
)
def test_peft_opens_ours(folder: Path, tmp_path: Path, lora: LoraConfig) -> None:
    decoder = decoder_of(folder, lora)
    randomize(adapter_tensors(decoder))
    save_adapter(decoder, lora, str(folder), tmp_path / "adapter")
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    without = their_logits(base, TOKENS_T)
    model = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert not torch.allclose(their_logits(model, TOKENS_T), without, atol=1e-2)
    torch.testing.assert_close(our_logits(decoder, TOKENS_T), their_logits(model, TOKENS_T), rtol=1e-4, atol=1e-4)


def test_we_open_theirs(folder: Path, tmp_path: Path) -> None:
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=list(LORA.targets), task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, config).eval()
    with torch.no_grad():
        randomize({name: p for name, p in model.named_parameters() if "lora_" in name})
    model.save_pretrained(tmp_path / "theirs")
    decoder = decoder_of(folder, LORA)
    load_adapter(decoder, LORA, tmp_path / "theirs")
    torch.testing.assert_close(our_logits(decoder, TOKENS_T), their_logits(model, TOKENS_T), rtol=1e-4, atol=1e-4)


def test_what_does_not_fit(tmp_path: Path) -> None:
    reference_model("qwen2 tied").save_pretrained(tmp_path / "base")
    write_tokenizer(tmp_path / "base")
    decoder = decoder_of(tmp_path / "base", LORA)
    save_adapter(decoder, LORA, "base", tmp_path / "adapter")
    for lora, words in (
        (replace(LORA, rank=8), "lora.rank is 8, but the adapter in .* has 4"),
        (replace(LORA, alpha=1.0), "lora.alpha is 1.0, but"),
        (replace(LORA, targets=("q_proj",)), "lora.targets is"),
        (replace(LORA, rslora=True), "lora.rslora is True"),
    ):
        with pytest.raises(UserError, match=words):
            load_adapter(decoder, lora, tmp_path / "adapter")
    with pytest.raises(UserError, match=r"holds no adapter_config\.json"):
        load_adapter(decoder, LORA, tmp_path / "base")
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match="cannot be read"):
        load_adapter(decoder, LORA, tmp_path / "adapter")
