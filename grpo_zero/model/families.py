"""Model families as data: a Hugging Face config to a ``ModelSpec``, our names to theirs. No torch.

Sources: the configuration and modelling files of transformers for qwen2, qwen3 and llama.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_zero.errors import UserError
from grpo_zero.model.spec import Llama3RopeScaling, ModelSpec


@dataclass(frozen=True, slots=True)
class Family:
    """What a ``model_type`` fixes that its config.json does not say."""

    architecture: str
    """Class name that config.json's ``architectures`` holds."""
    always_qkv_bias: bool = False
    reads_attention_bias: bool = True
    """``attention_bias: true`` gives q, k, v and the output projection a bias."""
    reads_mlp_bias: bool = False
    qk_norm: bool = False


FAMILIES = {
    "qwen2": Family("Qwen2ForCausalLM", always_qkv_bias=True, reads_attention_bias=False),
    "qwen3": Family("Qwen3ForCausalLM", qk_norm=True),
    "llama": Family("LlamaForCausalLM", reads_mlp_bias=True),
}


MAX_SIZE = 2**31 - 1
"""Of any one size of a config.json."""
MAX_LAYERS = 10_000
"""The names of all tensors are listed before any weight is looked at."""


def spec_from_config(config: Mapping[str, Any], origin: str = "config.json") -> ModelSpec:
    """The decoder that a Hugging Face ``config.json`` describes.

    Reads RoPE settings from ``rope_theta``/``rope_scaling`` or from the newer ``rope_parameters``.
    ``origin`` names the file in messages. Raises ``UserError`` for a model type, a switch or a RoPE
    type that we do not compute, and for missing or contradictory sizes.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UserError(
            f"{origin} says model_type {_shown(model_type)}; expected one of {', '.join(FAMILIES)}: "
            f"choose a model of these families (Qwen2, Qwen2.5, Qwen3, Llama, SmolLM2)."
        )
    family = FAMILIES[model_type]
    _refuse_what_we_do_not_compute(config, origin)
    num_heads = _size(config, "num_attention_heads", origin)
    width = _size(config, "hidden_size", origin)
    attention_bias = family.reads_attention_bias and _switch(config, "attention_bias", origin)
    rope = _rope_settings(config, origin)
    spec = ModelSpec(
        family=model_type,
        num_layers=_size(config, "num_hidden_layers", origin),
        width=width,
        ffn_width=_size(config, "intermediate_size", origin),
        num_heads=num_heads,
        num_kv_heads=_size(config, "num_key_value_heads", origin, default=num_heads),
        head_size=_head_size(config, width, num_heads, origin),
        vocab_size=_size(config, "vocab_size", origin),
        context=_size(config, "max_position_embeddings", origin),
        tied_head=_switch(config, "tie_word_embeddings", origin),
        qkv_bias=family.always_qkv_bias or attention_bias,
        output_bias=attention_bias,
        mlp_bias=family.reads_mlp_bias and _switch(config, "mlp_bias", origin),
        qk_norm=family.qk_norm,
        norm_eps=_positive(config, "rms_norm_eps", origin),
        rope_theta=_positive(rope, "rope_theta", origin),
        rope_scaling=_rope_scaling(rope, origin),
    )
    if spec.num_heads % spec.num_kv_heads:
        raise UserError(
            f"{origin} says num_attention_heads {spec.num_heads} and num_key_value_heads "
            f"{spec.num_kv_heads}; expected the first to be a multiple of the second: correct the "
            f"file."
        )
    if spec.num_layers > MAX_LAYERS:
        raise UserError(
            f"{origin} says num_hidden_layers {spec.num_layers}; expected at most {MAX_LAYERS}: correct the file."
        )
    return spec


def parameter_map(spec: ModelSpec) -> dict[str, tuple[str, ...]]:
    """Our parameter name to the Hugging Face tensors that, one below the other (axis 0), are it.

    The keys are exactly the parameter names of ``model.decoder.Decoder(spec)``.
    """
    names: dict[str, tuple[str, ...]] = {"embedding.weight": ("model.embed_tokens.weight",)}
    for layer in range(spec.num_layers):
        theirs = f"model.layers.{layer}"

        def add(our_name: str, *their_names: str, bias: bool = False, layer: int = layer) -> None:
            for leaf in ("weight", "bias") if bias else ("weight",):
                names[f"layers.{layer}.{our_name}.{leaf}"] = tuple(f"{name}.{leaf}" for name in their_names)

        attention, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
        add("attention_norm", f"{theirs}.input_layernorm")
        qkv = (f"{attention}.{part}_proj" for part in ("q", "k", "v"))
        add("attention.qkv", *qkv, bias=spec.qkv_bias)
        if spec.qk_norm:
            add("attention.q_norm", f"{attention}.q_norm")
            add("attention.k_norm", f"{attention}.k_norm")
        add("attention.output", f"{attention}.o_proj", bias=spec.output_bias)
        add("mlp_norm", f"{theirs}.post_attention_layernorm")
        add("mlp.gate_up", f"{mlp}.gate_proj", f"{mlp}.up_proj", bias=spec.mlp_bias)
        add("mlp.down", f"{mlp}.down_proj", bias=spec.mlp_bias)
    names["norm.weight"] = ("model.norm.weight",)
    if not spec.tied_head:
        names["head.weight"] = ("lm_head.weight",)
    return names


def hf_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor in ``parameter_map``'s values, by its Hugging Face name."""
    q, kv = spec.num_heads * spec.head_size, spec.num_kv_heads * spec.head_size
    tables = (spec.vocab_size, spec.width)
    by_module: dict[str, tuple[int, ...]] = {
        "embed_tokens": tables,
        "lm_head": tables,
        "q_proj": (q, spec.width),
        "k_proj": (kv, spec.width),
        "v_proj": (kv, spec.width),
        "o_proj": (spec.width, q),
        "gate_proj": (spec.ffn_width, spec.width),
        "up_proj": (spec.ffn_width, spec.width),
        "down_proj": (spec.width, spec.ffn_width),
        "q_norm": (spec.head_size,),
        "k_norm": (spec.head_size,),
        "input_layernorm": (spec.width,),
        "post_attention_layernorm": (spec.width,),
        "norm": (spec.width,),
    }
    shapes = {}
    for their_names in parameter_map(spec).values():
        for name in their_names:
            module, leaf = name.split(".")[-2:]
            shapes[name] = by_module[module] if leaf == "weight" else by_module[module][:1]
    return shapes


def untied(spec: ModelSpec) -> ModelSpec:
    """The same decoder with a vocabulary head of its own."""
    return dataclasses.replace(spec, tied_head=False)


def _refuse_what_we_do_not_compute(config: Mapping[str, Any], origin: str) -> None:
    layer_types = config.get("layer_types") or []
    if not isinstance(layer_types, list):
        raise _bad_value("layer_types", layer_types, "a list", origin)
    refusals = (
        (_switch(config, "use_sliding_window", origin), "use_sliding_window true", "full attention"),
        (
            any(kind != "full_attention" for kind in layer_types),
            "layer_types",
            "full attention only",
        ),
        (
            config.get("hidden_act", "silu") != "silu",
            f"hidden_act {_shown(config.get('hidden_act'))}",
            "silu",
        ),
        ("quantization_config" in config, "a quantization_config", "plain float weights"),
    )
    for is_refused, given, expected in refusals:
        if is_refused:
            raise UserError(
                f"{origin} has {given}; expected {expected}, the only kind this trainer computes: choose another model."
            )


def _rope_settings(config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """``rope_parameters``, or the older two keys in the same form; theta is 10000 if not named."""
    for key in ("rope_scaling", "rope_parameters"):
        if not isinstance(config.get(key) or {}, dict):
            raise _bad_value(key, config[key], "an object or null", origin)
    older = {
        "rope_theta": config.get("rope_theta") or 10000.0,
        **(config.get("rope_scaling") or {}),
    }
    return {**older, **(config.get("rope_parameters") or {})}


def _rope_scaling(rope: Mapping[str, Any], origin: str) -> Llama3RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise UserError(
            f"{origin} has partial_rotary_factor {_shown(rope['partial_rotary_factor'])}; expected whole "
            f"heads to be rotated: choose another model."
        )
    if kind == "default":
        return None
    if kind != "llama3":
        raise UserError(
            f"{origin} has RoPE scaling of type {_shown(kind)}; expected none, default or llama3: remove "
            f"the scaling from the file to train at the model's original context, or choose "
            f"another model."
        )
    return Llama3RopeScaling(
        factor=_positive(rope, "factor", origin),
        low_freq_factor=_positive(rope, "low_freq_factor", origin),
        high_freq_factor=_positive(rope, "high_freq_factor", origin),
        original_context=_size(rope, "original_max_position_embeddings", origin),
    )


def _head_size(config: Mapping[str, Any], width: int, num_heads: int, origin: str) -> int:
    if config.get("head_dim") is None and width % num_heads:
        raise UserError(
            f"{origin} says hidden_size {width} and num_attention_heads {num_heads} and no "
            f"head_dim; expected the first to be a multiple of the second: correct the file."
        )
    head_size = _size(config, "head_dim", origin, default=width // num_heads)
    if head_size % 2:
        raise UserError(
            f"{origin} gives heads of size {head_size}; expected an even size, which RoPE needs: correct the file."
        )
    return head_size


def _size(config: Mapping[str, Any], key: str, origin: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
        raise _bad_value(key, value, f"a whole number above 0 and up to {MAX_SIZE}", origin)
    return value


def _positive(config: Mapping[str, Any], key: str, origin: str) -> float:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise _bad_value(key, value, "a number above 0", origin)
    return float(value)


def _switch(config: Mapping[str, Any], key: str, origin: str) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise _bad_value(key, value, "true or false", origin)
    return bool(value)


def _shown(value: Any) -> str:
    """A value of a config.json in a message, short whatever it is."""
    return reprlib.repr(value)


def _bad_value(key: str, value: Any, expected: str, origin: str) -> UserError:
    given = f"has no {key}" if value is None else f"says {key} {_shown(value)}"
    return UserError(f"{origin} {given}; expected {expected}: download the model's own config.json again.")
