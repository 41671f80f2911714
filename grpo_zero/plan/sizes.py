"""Bytes of what a run holds, from a model's shape alone. Calibrated by tests/unit/plan: what torch keeps is counted there.

Axis names as in ``types.py``; ``item`` is the bytes of a weight, 2 for bfloat16 and 4 for float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

from grpo_zero.model.families import hf_shapes, parameter_map
from grpo_zero.model.spec import ModelSpec

MOMENT_BLOCK = 256
"""Weights that share a scale of 8-bit moments (``train/moments.py``)."""
STAGING_BYTES = 4 * 4 * 2**20
"""Buffers of ``train/offload.py``: 4 of 2^20 weights, 4 bytes each."""
IN_FLIGHT = 5
"""Gradients on their way to the host (``train/offload.py``), and the one that is being made."""
STEP_PARTS = 12
"""Float32 copies that a step makes of the part of a parameter it works on (``train/optimizer.py``)."""
STEP_CHUNK = {"cuda": 2**22, "mps": 2**22, "cpu": 2**20}
"""Weights in such a part."""
CACHED_LOGITS = 2**19
"""Logits that a CPU turns into probabilities at a time (``train/logprobs.py``)."""
SLOT_TOKEN_BYTES = 8 + 4 + 8
"""Id, log-prob and noise of a sampled token (``rollout/slots.py``)."""
PREFILL_TOKENS = {"cuda": 8192, "mps": 2048, "cpu": 2048}
"""Prompt tokens of one forward before sampling, at most; a longer prompt goes alone (``rollout/prefill.py``)."""
SHARD_BYTES = 5_000_000_000
"""Most of a model that is in main memory at once to be written (``checkpoint/save.py``)."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A packed micro-batch: its tokens, and the two rectangles that attention lays them out in."""

    tokens: int
    """T: prompts and completions, the last token of each completion left out."""
    prompts: int
    prompt_max: int
    """Longest prompt, tokens."""
    completions: int
    own_max: int
    """Longest completion, tokens, the last left out."""


@cache  # a plan asks for them thousands of times
def parameter_sizes(spec: ModelSpec) -> Mapping[str, int]:
    """Weights of each parameter, by our name."""
    shapes = hf_shapes(spec)
    return {name: sum(prod(shapes[part]) for part in parts) for name, parts in parameter_map(spec).items()}


def moment_bytes(sizes: Mapping[str, int], bits: int) -> int:
    """AdamW's two moments of trained parameters of these sizes."""
    if bits == 32:
        return 8 * sum(sizes.values())
    return sum(2 * size + 2 * 4 * -(-size // MOMENT_BLOCK) for size in sizes.values())


def rest_bytes(sizes: Mapping[str, int], item: int) -> int:
    """What the float32 masters hold beyond bf16 weights: an int16 each, always in host memory."""
    return 2 * sum(sizes.values()) if item == 2 else 0


def offloaded_gradient_bytes(sizes: Mapping[str, int], item: int) -> int:
    """Most gradients on the device while they leave it in backward: vocabulary tables' (whole only at the end), a few more."""
    tables = sum(size for name, size in sizes.items() if name in ("embedding.weight", "head.weight"))
    largest = max((size for name, size in sizes.items() if name.startswith("layers.0.")), default=0)
    layer = sum(size for name, size in sizes.items() if name.startswith("layers.0."))
    return item * (tables + min(layer + largest, IN_FLIGHT * largest))


def kept_bytes(spec: ModelSpec, stream: Stream, item: int, mode: str, device: str) -> int:
    """What a training forward keeps for backward, ``mode`` as ``recompute_activations``."""
    T, E = stream.tokens, spec.width
    layer = T * E * item if mode == "full" else kept_in_layer_bytes(spec, stream, item, mode, device)
    ends = T * 8 + 2 * T * E * item + 2 * T * 4  # ids; the last norm's input, normed input and two sizes
    return spec.num_layers * layer + ends + (0 if mode == "full" else index_bytes(stream, device))


def kept_in_layer_bytes(spec: ModelSpec, stream: Stream, item: int, mode: str, device: str) -> int:
    """The same of one block that is not computed again."""
    T, E, D = stream.tokens, spec.width, spec.head_size
    H, K = spec.num_heads, spec.num_kv_heads
    inputs = 2 * (T * E * item + T * 4)
    norms = T * (H + 2 * K) * D * item + T * (H + K) * (D * item + 8) if spec.qk_norm else 0
    attention = attention_bytes(spec, stream, item, device)
    if device != "cpu":
        attention += T * H * D * item  # the output product's input, which a CPU's attention has kept
    product = 2 * T * spec.ffn_width * item if mode == "none" else 0
    return inputs + norms + attention + product


def attention_bytes(spec: ModelSpec, stream: Stream, item: int, device: str) -> int:
    """What attention of a layer keeps: on a CPU inputs, output and log-sums, else what both its products are made of."""
    T, D, H, K = stream.tokens, spec.head_size, spec.num_heads, spec.num_kv_heads
    if device != "cpu":
        return rectangle_bytes(spec, stream, item) + T * H * D * item  # the output in the order of the rectangles
    queries = stream.prompts * stream.prompt_max + stream.completions * stream.own_max
    return 2 * T * (H + K) * D * item + 4 * H * queries


def rectangle_bytes(spec: ModelSpec, stream: Stream, item: int) -> int:
    """Queries, keys, values, output and log-sums of both attention products of a layer."""
    D, H, K = spec.head_size, spec.num_heads, spec.num_kv_heads
    prompts, own = stream.prompts * stream.prompt_max, stream.completions * stream.own_max
    prompt = prompts * (2 * (H + K) * D * item + 4 * H)
    if not own:
        return prompt
    keys = stream.prompt_max + stream.own_max
    completion = own * (2 * H * D * item + 4 * H) + 2 * stream.completions * keys * K * D * item
    return prompt + completion


def layout_bytes(spec: ModelSpec, stream: Stream, item: int) -> int:
    """What a micro-batch brings along: rotary tables, index tables, masks."""
    prompts, own = stream.prompts * stream.prompt_max, stream.completions * stream.own_max
    tables = 2 * stream.tokens * spec.head_size * item + 64 * stream.tokens + 17 * (prompts + own)
    pairs = own * (stream.prompt_max + stream.own_max)
    copies = spec.num_heads // spec.num_kv_heads  # of the bool mask, while the one in the weights' dtype is made
    return tables + pairs * (1 + copies) + mask_bytes(spec, stream, item)


def mask_bytes(spec: ModelSpec, stream: Stream, item: int) -> int:
    """The mask in the weights' dtype, one for all layers."""
    keys = stream.prompt_max + stream.own_max
    return stream.completions * stream.own_max * (spec.num_heads // spec.num_kv_heads) * keys * item


def layer_work_bytes(spec: ModelSpec, stream: Stream, item: int, mode: str, device: str) -> int:
    """Temporary memory of one block's backward; with ``full`` also what its second forward keeps."""
    scratch, mlp = mlp_work_bytes(spec, stream, item, mode)
    attention = attention_work_bytes(spec, stream, item, device)
    again = kept_in_layer_bytes(spec, stream, item, "selective", device) if mode == "full" else 0
    return again + in_turn_bytes(scratch, mlp, attention, device)


def in_turn_bytes(scratch: int, mlp: int, attention: int, device: str) -> int:
    """The MLP and attention at work one after the other; only on a CPU scratch memory stays for both."""
    return scratch + max(mlp, attention) if device == "cpu" else max(scratch + mlp, attention)


def attention_work_bytes(spec: ModelSpec, stream: Stream, item: int, device: str) -> int:
    """The attention's part of it.

    On a CPU queries, output and their gradients of one rectangle after the other, with the keys and values it sees and theirs,
    a prompt's repeated for the heads that share them. Beside them the prompts' keys and values, and the stream's gradients.
    """
    T, E, D, H, K = stream.tokens, spec.width, spec.head_size, spec.num_heads, spec.num_kv_heads
    if device != "cpu":
        return 2 * rectangle_bytes(spec, stream, item) + 2 * T * E * item
    prompts, own = stream.prompts * stream.prompt_max, stream.completions * stream.own_max
    keys = own + stream.completions * stream.prompt_max
    either = max(8 * H * prompts, 4 * H * own + 4 * K * keys) + 4 * K * prompts
    return item * (D * (either + 2 * (H + K) * T) + 2 * T * E)


def mlp_work_bytes(spec: ModelSpec, stream: Stream, item: int, mode: str) -> tuple[int, int]:
    """The MLP's part of it: what on a CPU stays for the next layer (``model/scratch.py``), and the rest."""
    product = 0 if mode == "none" else 2 * spec.ffn_width
    return stream.tokens * (4 * spec.ffn_width + product) * item, stream.tokens * spec.width * (4 + 3 * item)


def head_work_bytes(spec: ModelSpec, stream: Stream, item: int, chunk_tokens: int, device: str) -> int:
    """The vocabulary head's: hidden states with their gradient, and logits of a chunk.

    One float32 ``[C, V]`` for all chunks, and log-probs, on a CPU of a few rows at a time. In bf16 beside it what is to be copied
    to it and from it, the last chunk's gradient until the next is made.
    """
    completion_tokens = min(stream.tokens, stream.completions * stream.own_max)
    chunk = min(chunk_tokens, completion_tokens)
    has_several = completion_tokens > chunk
    rows = min(max(CACHED_LOGITS // spec.vocab_size, 1), chunk) if device == "cpu" else chunk
    a_logit = 4 + (2 + 2 * has_several if item == 2 else 0)
    return 2 * stream.tokens * spec.width * item + (chunk * a_logit + rows * 4) * spec.vocab_size


def step_work_bytes(sizes: Mapping[str, int], item: int, moment_bits: int, device: str) -> int:
    """Temporary memory of an optimizer step; float32 weights with float32 moments are stepped where they are."""
    if item == 4 and moment_bits == 32:
        return 0
    return STEP_PARTS * 4 * min(STEP_CHUNK[device], max(sizes.values()))


def kv_bytes(spec: ModelSpec, tokens: int, item: int) -> int:
    """Keys and values of so many tokens, all layers."""
    return 2 * spec.num_layers * spec.num_kv_heads * spec.head_size * tokens * item


def slot_bytes(spec: ModelSpec, max_new_tokens: int, item: int) -> int:
    """What one running completion has room for, its own keys and values before all."""
    return kv_bytes(spec, max_new_tokens, item) + SLOT_TOKEN_BYTES * max_new_tokens


def prompt_store_bytes(spec: ModelSpec, num_prompts: int, prompt_max: int, item: int) -> int:
    """Keys and values of the prompts in use: as prefilled, and laid out as rectangles, of which two exist for a moment."""
    return 3 * kv_bytes(spec, num_prompts * prompt_max, item)


def decode_work_bytes(spec: ModelSpec, slots: int, prompts: int, prompt_max: int, own_max: int, item: int) -> int:
    """Temporary memory of one step of sampling: scores in float32, keys of a layer in float32, the vocabulary's numbers."""
    K, D, H = spec.num_kv_heads, spec.head_size, spec.num_heads
    scores = slots * H * (prompt_max + own_max) * (3 * 4 + item)
    wide_keys = 4 * K * D * max(slots * own_max, prompts * prompt_max) if item == 2 else 0
    vocabulary = (
        slots * spec.vocab_size * (4 + 4 + 4 + 4 + 8)
    )  # logits, masked, log-probs, probs, cumulative in float64
    return max(scores + wide_keys, vocabulary)


def prefill_work_bytes(spec: ModelSpec, prompts: int, prompt_max: int, item: int, device: str) -> int:
    """Temporary memory of the prompts' forward, and the logits of their last tokens."""
    tokens = min(max(PREFILL_TOKENS[device], prompt_max), prompts * prompt_max)
    return tokens * (4 * spec.ffn_width * item + spec.width * (8 + 2 * item)) + prompts * spec.vocab_size * 4


def index_bytes(stream: Stream, device: str) -> int:
    """Index tables that autograd keeps of attention, int64: real slots of both rectangles, prompt of each completion, stream."""
    return 8 * (2 * stream.tokens + stream.completions) if device != "cpu" else 0
