"""What is saved loads again, equal in every weight; a tied table is written once (K04)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.save import save_folder
from grpo_zero.checkpoint.source import Source, open_source
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.families import parameter_map

FLOAT32 = {"dtype": torch.float32, "device": "cpu"}


def save(source: Source, decoder: Decoder, folder: Path, **options: object) -> None:
    state = dict(decoder.named_parameters())
    save_folder(folder, state, decoder.spec, config=source.config, tokenizer=source.tokenizer, **options)


def assert_equal_weights(one: Decoder, other: Decoder) -> None:
    ours, theirs = dict(one.named_parameters()), dict(other.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name]), name


def test_the_map_has_exactly_the_decoders_parameter_names(tiny_decoder: Decoder) -> None:
    names = {name for name, _ in tiny_decoder.named_parameters()}
    assert names == set(parameter_map(tiny_decoder.spec))
    assert sum(p.numel() for p in tiny_decoder.parameters()) == tiny_decoder.spec.num_parameters


def test_saved_and_loaded_weights_are_equal(tiny_folder: Path, tiny_decoder: Decoder) -> None:
    assert_equal_weights(load_decoder(open_source(str(tiny_folder)), **FLOAT32), tiny_decoder)


def test_what_the_folder_holds(tiny_folder: Path, bare_folder: Path) -> None:
    config = json.loads((tiny_folder / "config.json").read_text())
    generation = json.loads((tiny_folder / "generation_config.json").read_text())
    assert config["made_up_key"] == "kept"
    assert config["tie_word_embeddings"] is True
    assert config["dtype"] == config["torch_dtype"] == "float32"
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["eos_token_id"] == generation["eos_token_id"] == [3, 4]
    assert generation["top_k"] == 20
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tiny_folder / name).read_bytes() == (bare_folder / name).read_bytes()
    with safe_open(tiny_folder / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118  (not a dict)


def test_shards_with_an_index(tiny_folder: Path, tiny_decoder: Decoder, tmp_path: Path) -> None:
    sharded = tmp_path / "sharded"
    save(open_source(str(tiny_folder)), tiny_decoder, sharded, max_shard_bytes=20_000)
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    shards = sorted(path.name for path in sharded.glob("*.safetensors"))
    assert len(shards) > 2
    assert set(index["weight_map"].values()) == set(shards)
    assert index["metadata"]["total_size"] == 4 * tiny_decoder.spec.num_parameters
    assert_equal_weights(load_decoder(open_source(str(sharded)), **FLOAT32), tiny_decoder)


def test_bfloat16_files(tiny_folder: Path, tiny_decoder: Decoder, tmp_path: Path) -> None:
    source = open_source(str(tiny_folder))
    save(source, tiny_decoder, tmp_path / "half", dtype=torch.bfloat16)
    half = open_source(str(tmp_path / "half"))
    assert half.tensor("model.norm.weight").dtype == torch.bfloat16
    loaded = load_decoder(half, **FLOAT32)
    assert_equal_weights(loaded, tiny_decoder.to(torch.bfloat16).to(torch.float32))


def test_a_second_copy_of_a_tied_head_is_accepted(tiny_folder: Path) -> None:
    """K04."""
    path = tiny_folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path)
    assert open_source(str(tiny_folder)).spec.tied_head


def test_a_head_of_its_own_wins_over_a_config_that_says_tied(tiny_folder: Path, tmp_path: Path) -> None:
    path = tiny_folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, path)
    source = open_source(str(tiny_folder))
    assert not source.spec.tied_head
    decoder = load_decoder(source, **FLOAT32)
    save(source, decoder, tmp_path / "again")
    again = open_source(str(tmp_path / "again"))
    assert again.config["tie_word_embeddings"] is False
    assert_equal_weights(load_decoder(again, **FLOAT32), decoder)


def test_computed_buffers_of_old_files_are_ignored(tiny_folder: Path) -> None:
    path = tiny_folder / "model.safetensors"
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    save_file(load_file(path) | buffer, path)
    assert open_source(str(tiny_folder)).spec.num_layers == 2


def test_random_weights_depend_on_the_seed_alone(bare_folder: Path) -> None:
    source = open_source(str(bare_folder), weights=False)
    one, same, other = (load_decoder(source, random_init_seed=n, **FLOAT32) for n in (1, 1, 2))
    assert_equal_weights(one, same)
    assert not torch.equal(one.embedding.weight, other.embedding.weight)
    assert one.embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert (one.norm.weight == 1).all()
    assert one.embedding.weight.requires_grad


def test_an_existing_folder_is_kept_unless_overwrite_is_set(tiny_folder: Path, tiny_decoder: Decoder) -> None:
    source = open_source(str(tiny_folder))
    before = (tiny_folder / "config.json").stat().st_mtime_ns
    with pytest.raises(UserError, match="already exists"):
        save(source, tiny_decoder, tiny_folder)
    assert (tiny_folder / "config.json").stat().st_mtime_ns == before
    save(source, tiny_decoder, tiny_folder, overwrite=True)
    assert [path.name for path in tiny_folder.parent.glob(".*")] == []


def test_a_failed_save_leaves_the_old_folder_and_no_litter(tiny_folder: Path, tiny_decoder: Decoder) -> None:
    source = open_source(str(tiny_folder))
    wrong = dataclasses.replace(tiny_decoder.spec, num_layers=3)
    state = dict(tiny_decoder.named_parameters())
    with pytest.raises(KeyError):
        save_folder(
            tiny_folder,
            state,
            wrong,
            config=source.config,
            tokenizer=source.tokenizer,
            overwrite=True,
        )
    assert_equal_weights(load_decoder(open_source(str(tiny_folder)), **FLOAT32), tiny_decoder)
    assert [path.name for path in tiny_folder.parent.glob(".*")] == []
