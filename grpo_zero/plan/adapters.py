"""Bytes of what LoRA trains, and of what a forward with adapters keeps. Frozen weights have no gradient, moments or master.

An adapter keeps its input in float32 and its thin product; the sub-blocks it stands in take the plain path of autograd
(``model/lora.py``), which keeps more than the hand-written one that ``sizes.py`` counts. Calibrated by tests/unit/plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from grpo_zero.config import LoraConfig
from grpo_zero.model.families import hf_shapes, parameter_map
from grpo_zero.model.spec import ModelSpec
from grpo_zero.plan import sizes
from grpo_zero.plan.sizes import Stream

GROUPS = {
    "attention.qkv": ("q_proj", "k_proj", "v_proj"),
    "attention.output": ("o_proj",),
    "mlp.gate_up": ("gate_proj", "up_proj"),
    "mlp.down": ("down_proj",),
}
"""The matrices of each of a block's products, by our name of it."""
WIDE = 4
"""Bytes of a float32: adapters compute in it whatever the weights' dtype."""
DROPOUT_MASK = {"cuda": 1, "mps": 4, "cpu": 4}
"""Bytes of an input's place in the mask that dropout keeps."""


@cache
def adapter_sizes(spec: ModelSpec, lora: LoraConfig) -> Mapping[str, int]:
    """Weights of each trained matrix, by our parameter name."""
    shapes, found = hf_shapes(spec), dict[str, int]()
    for our_name, their_names in parameter_map(spec).items():
        for name in their_names:
            key, leaf = name.split(".")[-2:]
            if key in lora.targets and leaf == "weight":
                adapter, (out_size, in_size) = our_name.replace("weight", "adapter"), shapes[name]
                found |= {f"{adapter}.a.{key}": lora.rank * in_size, f"{adapter}.b.{key}": out_size * lora.rank}
    return found


def merged_bytes(spec: ModelSpec, lora: LoraConfig, item: int) -> int:
    """The adapted products' weights with their adapters merged in, as a checkpoint has them."""
    return item * spec.num_layers * sum(_adapted_products(spec, lora))


def merging_bytes(spec: ModelSpec, lora: LoraConfig, item: int) -> int:
    """The largest of them while it is merged: its weight, what is added, parts of that, and the sum, in float32."""
    return (3 * WIDE + item) * max(_adapted_products(spec, lora), default=0)


def _adapted_products(spec: ModelSpec, lora: LoraConfig) -> list[int]:
    """Weights of each of a block's products that has an adapter."""
    everything = sizes.parameter_sizes(spec)
    return [everything[f"layers.0.{product}.weight"] for product, number in num_adapted(lora).items() if number]


def num_adapted(lora: LoraConfig) -> dict[str, int]:
    """How many matrices of each product have an adapter."""
    return {product: sum(name in lora.targets for name in names) for product, names in GROUPS.items()}


def kept_bytes(spec: ModelSpec, stream: Stream, item: int, mode: str, lora: LoraConfig, device: str) -> int:
    """``sizes.kept_bytes`` with adapters. The first block keeps less, as nothing before it is trained: that is not subtracted."""
    T, E = stream.tokens, spec.width
    layer = T * E * item if mode == "full" else kept_in_layer_bytes(spec, stream, item, mode, lora, device)
    ends = T * E * item + 2 * T * 4  # the last norm's input and two sizes
    return spec.num_layers * layer + ends + (0 if mode == "full" else sizes.index_bytes(stream, device))


def kept_in_layer_bytes(spec: ModelSpec, stream: Stream, item: int, mode: str, lora: LoraConfig, device: str) -> int:
    """The same of one block that is not computed again."""
    T, E, F, D = stream.tokens, spec.width, spec.ffn_width, spec.head_size
    H, K = spec.num_heads, spec.num_kv_heads
    number = num_adapted(lora)

    def adapter(product: str, in_size: int) -> int:
        """The input, dropout's mask, the thin products."""
        mask = DROPOUT_MASK[device] if lora.dropout else 0
        return T * (in_size * (WIDE + mask) + WIDE * lora.rank * number[product]) if number[product] else 0

    sizes_of_norm = 2 if number["attention.qkv"] else 1  # a plain one keeps two numbers a token, a hand-written one
    inputs = 2 * T * E * item + 4 * T * sizes_of_norm
    norms = T * (H + 2 * K) * D * item + T * (H + K) * 8 if spec.qk_norm else 0
    attention = norms + sizes.attention_bytes(spec, stream, item, device)
    if device == "cpu" and item == WIDE and number["attention.output"] and not lora.dropout:
        attention -= T * H * D * WIDE  # the output itself is that adapter's input
    adapters = adapter("attention.qkv", E) + adapter("attention.output", H * D)
    if number["mlp.gate_up"] or number["mlp.down"]:  # gate and up, silu(gate): in every mode but full
        mlp = 8 * T + 3 * T * F * item
    else:
        mlp = 4 * T + (2 * T * F * item if mode == "none" else 0)
    return inputs + attention + adapters + mlp + adapter("mlp.gate_up", E) + adapter("mlp.down", F)


def layer_work_bytes(spec: ModelSpec, stream: Stream, item: int, mode: str, lora: LoraConfig, device: str) -> int:
    """``sizes.layer_work_bytes`` with adapters: float32 copies of a product's gradient and of an adapter's input."""
    T, E, F, D = stream.tokens, spec.width, spec.ffn_width, spec.head_size
    H, K = spec.num_heads, spec.num_kv_heads
    number = num_adapted(lora)
    scratch, mlp = sizes.mlp_work_bytes(spec, stream, item, mode)
    # Gradients of silu(gate) * up and of both factors; the adapter of down has given its own input free by then.
    inner = (2 if number["mlp.down"] else 3) * F * item
    if number["mlp.gate_up"] or number["mlp.down"]:
        scratch, mlp = 0, T * (inner + E * (2 * WIDE + 3 * item))
    attention = sizes.attention_work_bytes(spec, stream, item, device)
    if number["attention.qkv"] or number["attention.output"]:
        attention += T * (H + 2 * K) * D * (WIDE + 2 * item)
    again = kept_in_layer_bytes(spec, stream, item, "selective", lora, device) if mode == "full" else 0
    return again + sizes.in_turn_bytes(scratch, mlp, attention, device)


def prefill_work_bytes(spec: ModelSpec, prompts: int, prompt_max: int, item: int, device: str) -> int:
    """``sizes.prefill_work_bytes`` with adapters: the first product of the MLP, the adapters', their sum, an input in float32."""
    tokens = min(max(sizes.PREFILL_TOKENS[device], prompt_max), prompts * prompt_max)
    work = 6 * spec.ffn_width * item + spec.width * (8 + WIDE + 2 * item)
    return tokens * work + prompts * spec.vocab_size * 4
