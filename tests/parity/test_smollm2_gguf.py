"""A real pretrained model, read from a GGUF file: its loss says whether it is read rightly.

Text from a wrongly read model still looks half right, so the loss on plain English is checked. Measured
on the text below: 2.19 nats a token, and 4.11 with the q and k rows left in the converter's order.
"""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from grpo_zero.checkpoint.gguf import to_rotate_halves
from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.save import hf_pieces
from grpo_zero.checkpoint.source import Source, open_source
from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder

REPO = Path(__file__).parents[2]

ENGLISH = """Water is a clear liquid that covers about seventy percent of the surface of the Earth.
It is made of two elements, hydrogen and oxygen, and it is necessary for all known forms of life. Plants
take water from the soil through their roots and use it, together with light from the sun, to make food.
When water is heated to one hundred degrees Celsius at sea level, it boils and turns into steam. When it
is cooled below zero degrees, it freezes and becomes ice. The movement of water between the oceans, the
air and the land is called the water cycle."""


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPO / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def source() -> Source:
    script = load_script("fetch_smollm2")
    try:
        path = script.fetch()
    except script.FetchError as error:
        pytest.skip(f"SmolLM2 IS NOT TESTED: {error}")
    return open_source(str(path))


@pytest.fixture(scope="module")
def decoder(source: Source) -> Decoder:
    return load_decoder(source, dtype=torch.float32, device="cpu").requires_grad_(False)


def english_ids(source: Source) -> torch.Tensor:
    return torch.tensor(source.tokenizer.encode(ENGLISH.replace("\n", " ")))


def logits(decoder: Decoder, tokens_T: torch.Tensor) -> torch.Tensor:
    positions_T = torch.arange(len(tokens_T))
    return decoder.logits(decoder(tokens_T, positions_T, DenseCausal()))


def loss(logits_TV: torch.Tensor, tokens_T: torch.Tensor) -> float:
    """Mean over the tokens but the first, nats."""
    return F.cross_entropy(logits_TV[:-1], tokens_T[1:]).item()


def test_shape_and_tokenizer(source: Source) -> None:
    assert source.spec.num_parameters == 134_515_008
    assert source.spec.tied_head
    assert source.spec.norm_eps == 1e-5
    assert source.spec.rope_theta == 100_000.0
    assert source.tokenizer.stop_ids == {0, 2}
    assert source.tokenizer.has_token_V(source.spec.vocab_size).all()
    assert source.tokenizer.encode("<|im_start|>12 + 3") == [1, 33, 34, 1232, 216, 35]
    assert source.chat_template is not None
    assert "named SmolLM" in source.chat_template.render([{"role": "user", "content": "hi"}])


def test_loss_on_plain_english_and_logits_of_transformers(source: Source, decoder: Decoder) -> None:
    tokens_T = english_ids(source)
    ours_TV = logits(decoder, tokens_T)
    assert loss(ours_TV, tokens_T) < 3.1

    config = transformers.AutoConfig.for_model(**source.config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    pieces = dict(hf_pieces(dict(decoder.named_parameters()), decoder.spec))
    pieces["lm_head.weight"] = pieces["model.embed_tokens.weight"]
    model.load_state_dict(pieces, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its buffer is not in the file
    with torch.no_grad():
        theirs_TV = model.eval()(tokens_T[None]).logits[0]
    torch.testing.assert_close(ours_TV, theirs_TV, atol=1e-4, rtol=0)


def test_the_loss_shows_rows_left_in_the_converters_order(source: Source, decoder: Decoder) -> None:
    spec = decoder.spec
    sizes = [spec.num_heads * spec.head_size] + 2 * [spec.num_kv_heads * spec.head_size]
    wrong_decoder = copy.deepcopy(decoder)
    for layer in wrong_decoder.layers:
        q, k, _ = layer.attention.qkv.weight.split(sizes)
        q.copy_(converters_order(q, spec.num_heads))
        k.copy_(converters_order(k, spec.num_kv_heads))
    tokens_T = english_ids(source)
    assert loss(logits(wrong_decoder, tokens_T), tokens_T) > 3.6


def converters_order(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """How llama.cpp's converter stores the rows of q and k; the reader undoes it."""
    stored = rows.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).reshape(rows.shape)
    assert np.array_equal(to_rotate_halves(stored.numpy(), num_heads), rows.numpy())
    return stored


def test_greedy_answer(source: Source, decoder: Decoder) -> None:
    """Every token of the known answer is the likeliest one after the tokens before it."""
    assert source.chat_template is not None
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = source.tokenizer.encode(source.chat_template.render(question))
    answer = source.tokenizer.encode("The capital of France is Paris.<|im_end|>")
    greedy = logits(decoder, torch.tensor(prompt + answer)).argmax(-1)
    assert greedy[len(prompt) - 1 : -1].tolist() == answer
