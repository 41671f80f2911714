"""Part (c) of the GPU suite: decode and update speed, as shares of what the device reaches in reading and in a large product."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpu_memory import moment_bits
from gpu_models import SHAPES, Load, policy_of, random_decoder, random_prompts, rows_of

from grpo_zero.bench.floors import measure_peaks, product_weights, seconds
from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.batch import TrainRow, pack, split_micro_batches
from grpo_zero.train.optimizer import AdamW, HostAdamW
from grpo_zero.train.policy import set_recompute
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import backward

TINY_PEAKS = {"size": 256, "read_bytes": 2**24}
"""On a CPU the suite only shows that it runs."""
LOSS = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)


def measure(device: torch.device, shape: str, batches: list[int], load: Load) -> Iterator[dict[str, object]]:
    """One record a measurement."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    limits = measure_peaks(device, dtype, **TINY_PEAKS if device.type == "cpu" else {})
    bandwidth, flops = limits.read_bytes, limits.product_flops
    yield {
        "part": "times",
        "what": "peaks",
        "shape": shape,
        "read_gb_s": bandwidth / 1e9,
        "product_tflops": flops / 1e12,
    }
    decoder = random_decoder(SHAPES[shape], device, dtype)
    for batch in batches:
        for decode in ("static", "dynamic"):
            yield {"part": "times", "shape": shape} | _decode(decoder, decode, batch, load, bandwidth)
    yield from ({"part": "times", "shape": shape} | record for record in _updates(decoder, batches[0], load, flops))


def _decode(decoder: Decoder, decode: str, batch: int, load: Load, bandwidth: float) -> dict[str, object]:
    """Steady speed from the difference of a long and a short call, and the speed of the long call with all it takes."""
    prompts = random_prompts(load.num_prompts, load.prompt_tokens, decoder.spec.vocab_size)
    engine = Engine(decoder, frozenset(), None, decode=decode)
    short, long = load.new_tokens // 4, load.new_tokens

    def call(new_tokens: int) -> float:
        params = SamplingParams(new_tokens)
        return seconds(partial(engine.generate, prompts, batch // len(prompts), params), decoder.device)

    call(short)
    short_s, long_s = call(short), call(long)
    step_s = max(long_s - short_s, 1e-9) / (long - short)
    read = _bytes_per_step(decoder, batch, load, (short + long) / 2)
    return {
        "what": f"decode {decode}",
        "batch": batch,
        "tokens_s": batch / step_s,
        "whole_call_tokens_s": batch * long / long_s,
        "share_of_bandwidth": read / step_s / bandwidth,
    }


def _bytes_per_step(decoder: Decoder, batch: int, load: Load, own_tokens: float) -> float:
    """What a step cannot avoid to read: the weights, keys and values (an untied table's rows are few and not counted)."""
    spec, itemsize = decoder.spec, decoder.embedding.weight.itemsize
    cached = load.num_prompts * load.prompt_tokens + batch * own_tokens
    return itemsize * (product_weights(spec) + 2 * spec.num_layers * spec.num_kv_heads * spec.head_size * cached)


def _updates(decoder: Decoder, batch: int, load: Load, flops: float) -> Iterator[dict[str, object]]:
    """``share_of_flops`` counts 6 a weight and token; the 2 more of computing again are not counted, nor is attention."""
    spec, config = decoder.spec, TrainingConfig()  # which computes activations again on a GPU
    set_recompute(decoder, config)
    prompts = random_prompts(load.num_prompts, load.prompt_tokens, spec.vocab_size)
    completions_PG = Engine(decoder, frozenset(), None).generate(
        prompts, batch // len(prompts), SamplingParams(load.new_tokens)
    )
    rows = weigh(rows_of(prompts, completions_PG), "token", load.new_tokens)
    stream_tokens = load.num_prompts * load.prompt_tokens + batch * (load.new_tokens - 1)

    update_record = _plain(decoder, rows, config, stream_tokens)
    backward_s = update_record["backward_s"]
    share = 6 * product_weights(spec) * stream_tokens / backward_s / flops
    yield {"what": "update", "batch": batch, **update_record, "share_of_flops": share}
    bits = moment_bits(spec)
    if bits is None:
        yield {"what": "offload", "batch": batch, "skipped": "main memory is short"}
    else:
        yield {"what": "offload", "batch": batch, **_offloaded(decoder, rows, config, bits, backward_s)}


def _plain(decoder: Decoder, rows: list[TrainRow], config: TrainingConfig, stream_tokens: int) -> dict[str, float]:
    optimizer = AdamW(decoder.named_parameters(), moment_bits=8)
    _backward(decoder, optimizer, rows, config)
    backward_s = seconds(lambda: _backward(decoder, optimizer, rows, config), decoder.device)
    step_s = seconds(lambda: optimizer.step(1e-6), decoder.device)
    optimizer.zero_grad()
    return {"tokens_s": stream_tokens / (backward_s + step_s), "backward_s": backward_s, "step_s": step_s}


def _offloaded(
    decoder: Decoder, rows: list[TrainRow], config: TrainingConfig, bits: int, plain_s: float
) -> dict[str, float]:
    """``hidden_share``: of what offloading gradients takes alone, the part that costs backward no time."""
    optimizer = HostAdamW(decoder.named_parameters(), moment_bits=bits)
    _backward(decoder, optimizer, rows, config)  # touches all of its memory for the first time
    backward_s = seconds(lambda: _backward(decoder, optimizer, rows, config), decoder.device)
    step_s = seconds(lambda: optimizer.step(1e-6), decoder.device)
    alone_s = seconds(lambda: _gradients_alone(decoder, optimizer), decoder.device)
    hidden = 1 - (backward_s - plain_s) / alone_s
    return {"moment_bits": bits, "backward_s": backward_s, "step_s": step_s, "alone_s": alone_s, "hidden_share": hidden}


def _backward(decoder: Decoder, optimizer: AdamW, rows: list[TrainRow], config: TrainingConfig) -> None:
    """The update up to its step."""
    optimizer.begin()
    for micro_rows in split_micro_batches(rows, config.micro_batch_tokens, config.micro_batch_size):
        backward(policy_of(decoder), pack(micro_rows, decoder.device), LOSS, 1.0, config.head_chunk_tokens)
        optimizer.gather()
    optimizer.clip(config.max_grad_norm)


def _gradients_alone(decoder: Decoder, optimizer: HostAdamW) -> None:
    """What offloading adds to one micro-batch's backward, with nothing to hide behind."""
    optimizer.begin()
    for parameter in decoder.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.gather()
    optimizer.clip(1e9)
