"""Part (a) of the GPU suite: what the device computes against the CPU, in float32."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpu_models import SMALL, policy_of, random_decoder, random_prompts, rows_of
from torch import Tensor

from grpo_zero.model.attention import DenseCausal
from grpo_zero.model.decoder import Decoder
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.naive import naive_generate
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.batch import pack
from grpo_zero.train.optimizer import AdamW, HostAdamW
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import backward

CPU = torch.device("cpu")
NUM_STEPS = 5


def measure(device: torch.device) -> Iterator[dict[str, object]]:
    """One record a comparison: ``difference`` (relative, or a share of tokens) and ``limit``."""
    there, here = (random_decoder(SMALL, CPU, torch.float32).to(where) for where in (device, CPU))
    tokens_T = torch.tensor(random_prompts(1, 64, SMALL.vocab_size)[0])
    yield _record("logits", _apart(_logits(there, tokens_T), _logits(here, tokens_T)), 1e-4)
    yield _record("packed gradients", _apart(_gradient(there), _gradient(here)), 1e-3)

    prompts, params = random_prompts(3, 9, SMALL.vocab_size), SamplingParams(12, temperature=0.0)
    naive = naive_generate(there, prompts, 4, params, stop_ids=frozenset(range(50)))
    expected = [c.token_ids for group in naive for c in group]
    for decode in ("dynamic", "static"):
        engine = Engine(there, frozenset(range(50)), None, decode=decode)
        found = [c.token_ids for group in engine.generate(prompts, 4, params) for c in group]
        share = sum(a != b for a, b in zip(found, expected, strict=True)) / len(expected)
        yield _record(f"greedy {decode}, completions that differ from naive", share, 0.0)

    bits_8 = {"moment_bits": 8}
    yield _record("8-bit moments", _apart(_stepped(AdamW, device, **bits_8), _stepped(AdamW, CPU, **bits_8)), 0.02)
    yield _record("offloaded AdamW against plain", _apart(_stepped(HostAdamW, device), _stepped(AdamW, device)), 1e-3)


def _record(what: str, difference: float, limit: float) -> dict[str, object]:
    return {"part": "values", "what": what, "difference": difference, "limit": limit, "passes": difference <= limit}


def _apart(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference, relative."""
    expected = expected.cpu()
    return float((found.cpu() - expected).norm() / expected.norm())


@torch.no_grad()
def _logits(decoder: Decoder, tokens_T: Tensor) -> Tensor:
    tokens_T = tokens_T.to(decoder.device)
    return decoder.logits(decoder(tokens_T, torch.arange(len(tokens_T), device=decoder.device), DenseCausal()))


def _gradient(decoder: Decoder) -> Tensor:
    prompts = random_prompts(3, 9, SMALL.vocab_size)
    engine = Engine(random_decoder(SMALL, CPU, torch.float32), frozenset(range(50)), None)
    rows = weigh(rows_of(prompts, engine.generate(prompts, 4, SamplingParams(24))), "token", 24)
    loss = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
    backward(policy_of(decoder), pack(rows, decoder.device), loss, 1.0, 64)
    gradient = torch.cat([p.grad.flatten() for p in decoder.parameters() if p.grad is not None])
    decoder.zero_grad()
    return gradient


def _stepped(kind: type[AdamW], device: torch.device, **options: int) -> Tensor:
    """How far a few steps on given gradients move the weights."""
    generator = torch.Generator().manual_seed(0)
    start = 0.02 * torch.randn(333, 70, generator=generator)
    weight = torch.nn.Parameter(start.clone().to(device))
    optimizer = kind([("weight", weight)], **options)
    for _ in range(NUM_STEPS):
        optimizer.begin()
        grad = torch.randn(start.shape, generator=generator).to(device)
        (weight * grad).sum().backward()
        optimizer.clip(1e9)
        optimizer.step(1e-3)
        optimizer.zero_grad()
    return weight.detach().cpu() - start
