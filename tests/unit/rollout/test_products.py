"""Kernels of sampling: equal values, chosen once a machine, gone after sampling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from helpers.tiny import SPECS

from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout import products
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.products import KERNELS, decode_products, fastest
from grpo_zero.rollout.sampler import SamplingParams

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
pytestmark = needs_onednn


@pytest.fixture(autouse=True)
def even_tiny_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "FEWEST_BYTES", 0)


def force(path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str) -> list[tuple[tuple[int, ...], int]]:
    """Let every measurement end with ``kernel``; returns what was measured: shape and rows."""
    measured: list[tuple[tuple[int, ...], int]] = []

    def chosen(weights: list[torch.Tensor], rows: int) -> str:
        measured.append((tuple(weights[0].shape), rows))
        return kernel

    monkeypatch.setattr(products, "fastest", chosen)
    monkeypatch.setattr(products, "cache_folder", lambda: path.parent)
    return measured


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("rows", [1, 3, 16, 64])
def test_kernels_equal_float64(name: str, rows: int, bias: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(n, 40, generator=generator) for n in (rows, 24))
    offset = torch.randn(24, generator=generator) if bias else None
    expected = x.double() @ weight.double().T + (offset.double() if bias else 0.0)
    torch.testing.assert_close(KERNELS[name](x, weight, offset).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_logits_and_samples_are_the_same_with_every_kernel(
    decoder: Decoder, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(tmp_path / "products.json", monkeypatch, kernel)
    tokens_T = torch.randint(0, 61, (9,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        plain = decoder.logits(decoder(tokens_T, torch.arange(9), DenseCausal()))
        with decode_products(decoder, 16):
            chosen = decoder.logits(decoder(tokens_T, torch.arange(9), DenseCausal()))
        torch.testing.assert_close(chosen, plain, rtol=1e-5, atol=1e-4)
        again = decoder.logits(decoder(tokens_T, torch.arange(9), DenseCausal()))
    assert torch.equal(again, plain), "nothing is left behind"
    engines = [Engine(decoder, frozenset({3}), None, kernels=kernels) for kernels in ("plain", "measured")]
    texts = [engine.generate([[1, 2], [5]], 3, SamplingParams(12)) for engine in engines]
    assert [[c.token_ids for c in group] for group in texts[0]] == [[c.token_ids for c in group] for group in texts[1]]


def test_the_chosen_kernel_is_the_one_that_multiplies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder(SPECS["qwen2"])
    force(tmp_path / "products.json", monkeypatch, "weight_first")
    calls: list[int] = []
    kernel = KERNELS["weight_first"]
    monkeypatch.setitem(KERNELS, "weight_first", lambda x, w, b: calls.append(len(x)) or kernel(x, w, b))
    with torch.no_grad(), decode_products(decoder, 1000):
        for rows in (3, products.MOST_ROWS, products.MOST_ROWS + 1):
            decoder.logits(torch.randn(rows, 32))
            decoder.layers[0].attention.qkv(torch.randn(rows, 32))
    assert calls == [3, 3, 64, 64]


def test_training_never_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder(SPECS["qwen2"])
    force(tmp_path / "products.json", monkeypatch, "onednn")
    monkeypatch.setitem(KERNELS, "onednn", lambda *_: pytest.fail("used in training"))
    with decode_products(decoder, 4):
        decoder(torch.tensor([1, 2]), torch.arange(2), DenseCausal()).sum().backward()


def test_a_choice_is_measured_once_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache" / "products.json"
    measured = force(path, monkeypatch, "onednn")
    decoder = Decoder(SPECS["qwen2"])
    with decode_products(decoder, 3):
        pass
    shapes = {(61, 32), (64, 32), (32, 32), (96, 32), (32, 48)}
    assert set(measured) == {(shape, rows) for shape in shapes for rows in (1, 2, 4)}
    measured.clear()
    with decode_products(decoder, 4):
        pass
    assert measured == []
    with decode_products(decoder, 5):
        pass
    assert {rows for _, rows in measured} == {8}
    (choices,) = json.loads(path.read_text()).values()
    assert set(choices.values()) == {"onednn"}


@pytest.mark.parametrize("content", ["", "[]", '{"machine": 3}', "{", "\x00"])
def test_a_damaged_file_is_measured_anew(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "products.json"
    path.write_text(content)
    measured = force(path, monkeypatch, "linear")
    with decode_products(Decoder(SPECS["qwen2"]), 1):
        pass
    assert measured
    assert len(json.loads(path.read_text())) == 1


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    force(tmp_path / "file" / "products.json", monkeypatch, "linear")
    with decode_products(Decoder(SPECS["qwen2"]), 1):
        pass


def test_small_models_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = force(tmp_path / "products.json", monkeypatch, "onednn")
    decoder = Decoder(SPECS["qwen2"])
    monkeypatch.setattr(products, "FEWEST_BYTES", decoder.spec.num_parameters * 4 + 1)
    with decode_products(decoder, 4):
        assert decoder.head_product is None
        assert decoder.layers[0].attention.qkv.product is None
    assert measured == []


def test_the_fastest_is_the_one_that_took_least(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(products.time, "perf_counter", lambda: clock[0])

    def taking(seconds: float):
        def kernel(x, w, b):
            clock[0] += seconds
            return x

        return kernel

    monkeypatch.setattr(products, "KERNELS", {"slow": taking(2.0), "fast": taking(1.0), "middle": taking(1.5)})
    assert fastest([torch.zeros(3, 2), torch.zeros(3, 2)], 4) == "fast"
