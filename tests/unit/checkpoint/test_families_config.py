"""Every published config gives the published parameter count; odd configs are refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from helpers.tiny import TINY_LLAMA_CONFIG

from grpo_zero.errors import UserError
from grpo_zero.model.families import hf_shapes, parameter_map, spec_from_config

MODELS = (
    "Qwen2.5-0.5B-Instruct",
    "Qwen2.5-1.5B-Instruct",
    "Qwen2.5-3B-Instruct",
    "Qwen2.5-7B-Instruct",
    "Qwen3-0.6B",
    "Qwen3-1.7B",
    "Qwen3-4B",
    "Llama-3.2-1B-Instruct",
    "Llama-3.2-3B-Instruct",
    "SmolLM2-135M-Instruct",
    "SmolLM2-360M-Instruct",
    "SmolLM2-1.7B-Instruct",
)


@pytest.mark.parametrize("model", MODELS)
def test_parameter_counts_are_the_published_ones(shared_data: Path, model: str) -> None:
    config = json.loads((shared_data / "configs" / model / "config.json").read_text())
    published = json.loads((shared_data / "configs" / "parameter_counts.json").read_text())[model]
    spec = spec_from_config(config)
    assert spec.num_parameters == published
    assert sum(math.prod(shape) for shape in hf_shapes(spec).values()) == published


def test_head_size_is_explicit_for_qwen3_and_derived_for_qwen2(shared_data: Path) -> None:
    sizes = {}
    for model in ("Qwen3-0.6B", "Qwen2.5-0.5B-Instruct"):
        config = json.loads((shared_data / "configs" / model / "config.json").read_text())
        sizes[model] = spec_from_config(config).head_size
    assert sizes == {"Qwen3-0.6B": 128, "Qwen2.5-0.5B-Instruct": 64}


def test_rope_is_read_in_the_old_and_in_the_new_place() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    old = {**TINY_LLAMA_CONFIG, "rope_theta": 500000.0, "rope_scaling": scaling}
    new = {**TINY_LLAMA_CONFIG, "rope_parameters": {"rope_theta": 500000.0, **scaling}}
    del new["rope_theta"]
    assert spec_from_config(old) == spec_from_config(new)
    assert spec_from_config(old).rope_theta == 500000.0


def test_biases_by_family() -> None:
    biases = {}
    for model_type in ("qwen2", "qwen3", "llama"):
        spec = spec_from_config({**TINY_LLAMA_CONFIG, "model_type": model_type, "attention_bias": True})
        biases[model_type] = (spec.qkv_bias, spec.output_bias)
    assert biases == {"qwen2": (True, False), "qwen3": (True, True), "llama": (True, True)}


def test_the_map_names_each_tensor_once() -> None:
    spec = spec_from_config({**TINY_LLAMA_CONFIG, "attention_bias": True, "mlp_bias": True})
    theirs = [name for names in parameter_map(spec).values() for name in names]
    assert len(theirs) == len(set(theirs)) == len(hf_shapes(spec))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model_type": "gemma2"}, "'gemma2'; expected one of qwen2, qwen3, llama"),
        ({"model_type": None}, "expected one of"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
        ({"hidden_act": "gelu"}, "'gelu'; expected silu"),
        ({"quantization_config": {}}, "quantization_config"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "'yarn'; expected none, default or llama3",
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "has no low_freq_factor"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"vocab_size": "many"}, "says vocab_size 'many'"),
        ({"num_hidden_layers": 0}, "above 0"),
        ({"num_key_value_heads": 3}, "multiple"),
        ({"hidden_size": 33}, "multiple"),
        ({"head_dim": 7}, "even"),
        ({"rms_norm_eps": None}, "has no rms_norm_eps"),
    ],
)
def test_what_we_can_not_run_is_refused(change: dict, expected: str) -> None:
    config = {**TINY_LLAMA_CONFIG, **change}
    with pytest.raises(UserError, match=expected):
        spec_from_config(config)
