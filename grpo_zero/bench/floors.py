"""The least seconds a phase could take here: the arithmetic and the memory traffic that it cannot do without (a roofline).

What the machine can do is measured at the start of the same run. Counted are products and attention; elementwise work is free,
and so are activations' trips to memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grpo_zero.model.spec import ModelSpec
from grpo_zero.train.metrics import wait

NUM_TRIES = 5


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the machine reaches in the dtype of the weights."""

    product_flops: float
    """FLOP/s of a large matrix product."""
    read_bytes: float
    """Bytes/s of reading a large matrix once for a product with one row, or of copying it, whichever is more."""


@dataclass(frozen=True, slots=True)
class Group:
    """A question's share of a step."""

    prompt_tokens: int
    completion_tokens: Sequence[int]
    """Of each completion."""
    shared_tokens: int = 0
    """First tokens of the prompt that another group's begins with too and that count there."""


def measure_peaks(
    device: torch.device, dtype: torch.dtype, size: int | None = None, read_bytes: int | None = None
) -> Peaks:
    """The best of a few tries; ``size`` of the square product and ``read_bytes`` of the matrix read are chosen when not given."""
    is_cuda = device.type == "cuda"
    size = size or (8192 if is_cuda else 2048)
    rows = (read_bytes or (2**31 if is_cuda else 2**29)) // dtype.itemsize // 4096

    def best_s(work: Callable[[], object]) -> float:
        return min(seconds(work, device) for _ in range(NUM_TRIES))

    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    product_s = best_s(lambda: a @ b)
    matrix, x = torch.ones(rows, 4096, dtype=dtype, device=device), torch.ones(4096, dtype=dtype, device=device)
    target = torch.empty_like(matrix)
    read_bytes_s = max(
        matrix.nbytes / best_s(lambda: matrix @ x), 2 * matrix.nbytes / best_s(lambda: target.copy_(matrix))
    )
    return Peaks(2 * size**3 / product_s, read_bytes_s)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Of one call, to its end on the device."""
    wait(device)
    started = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - started


def block_weights(spec: ModelSpec) -> int:
    """Weights outside of the vocabulary's tables."""
    return spec.num_parameters - spec.vocab_size * spec.width * (1 if spec.tied_head else 2)


def head_weights(spec: ModelSpec) -> int:
    """Weights of the product that makes logits."""
    return spec.vocab_size * spec.width


def product_weights(spec: ModelSpec) -> int:
    """Weights that a decoding step multiplies by: all but an untied input table."""
    return block_weights(spec) + head_weights(spec)


def prefill_floor(spec: ModelSpec, groups: Sequence[Group], peaks: Peaks) -> float:
    """Every prompt once, what all begin with once for all, logits of a prompt's last token."""
    tokens = sum(group.prompt_tokens - group.shared_tokens for group in groups)
    pairs = sum(_causal(group.prompt_tokens) - _causal(group.shared_tokens) for group in groups)
    flops = 2 * (block_weights(spec) * tokens + head_weights(spec) * len(groups)) + _attention(spec, pairs)
    return flops / peaks.product_flops


def decode_floor(spec: ModelSpec, groups: Sequence[Group], peaks: Peaks, itemsize: int) -> float:
    """Every step reads all weights that are multiplied by, keys and values of each prompt once and of each completion's own.

    All completions begin at once; each step takes the longer of its reading and its arithmetic.
    """
    weights = product_weights(spec)
    a_token = 2 * spec.num_layers * spec.num_kv_heads * spec.head_size
    longest = max((length for group in groups for length in group.completion_tokens), default=0)
    total = 0.0
    for own in range(1, longest):  # the first token comes of the prompt
        running = [sum(length > own for length in group.completion_tokens) for group in groups]
        cached = sum(
            group.prompt_tokens - group.shared_tokens + n * own for group, n in zip(groups, running, strict=True) if n
        )
        pairs = sum(n * (group.prompt_tokens + own) for group, n in zip(groups, running, strict=True))
        flops = 2 * weights * sum(running) + _attention(spec, pairs)
        total += max(flops / peaks.product_flops, itemsize * (weights + a_token * cached) / peaks.read_bytes)
    return total


def update_floor(spec: ModelSpec, groups: Sequence[Group], peaks: Peaks) -> float:
    """Forward and backward, a prompt once a group, the head on completions alone, nothing computed again."""
    stream, targets, pairs = 0, 0, 0
    for group in groups:
        prompt, lengths = group.prompt_tokens, group.completion_tokens
        stream += prompt - group.shared_tokens + sum(length - 1 for length in lengths)
        targets += sum(lengths)
        pairs += _causal(prompt) - _causal(group.shared_tokens)
        pairs += sum(prompt * (length - 1) + _causal(length - 1) for length in lengths)
    flops = 2 * (block_weights(spec) * stream + head_weights(spec) * targets) + _attention(spec, pairs)
    return 3 * flops / peaks.product_flops


def optimizer_floor(spec: ModelSpec, peaks: Peaks, itemsize: int, moment_bytes: int) -> float:
    """Weight, gradient and two moments read, weight and moments written; bf16 weights have a rest of 2 bytes more."""
    rest = 2 if itemsize == 2 else 0
    return spec.num_parameters * (itemsize + 2 * (itemsize + rest + 2 * moment_bytes)) / peaks.read_bytes


def _causal(tokens: int) -> int:
    """Pairs of a query and a key it sees."""
    return tokens * (tokens + 1) // 2


def _attention(spec: ModelSpec, pairs: int) -> int:
    """FLOPs of scores and weighted sums, all layers."""
    return 4 * spec.num_layers * spec.num_heads * spec.head_size * pairs
