"""One update: packed micro-batches -> gradients -> clipped step. GRPO and supervised training share it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grpo_zero.algorithms.losses import policy_gradient_loss
from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.train.batch import PackedBatch, TrainRow, pack, split_micro_batches
from grpo_zero.train.logprobs import chunked_logprobs
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy


def update(
    policy: Policy,
    optimizer: AdamW,
    rows: Sequence[TrainRow],
    *,
    num_trained_tokens: int,
    learning_rate: float,
    config: TrainingConfig,
    temperature: float = 1.0,
) -> dict[str, float]:
    """Learn from ``rows`` in one optimizer step.

    Args:
        rows: completions with their advantages, a group's rows together. Rows with advantage 0 are not forwarded: their
            gradient is exactly zero.
        num_trained_tokens: the normaliser: completion tokens of the whole update, those of skipped rows included.
        learning_rate: of this step.
        config: micro-batch limits, chunk size, gradient clipping.
        temperature: the sampling temperature; log-probs are of the tempered distribution.

    Returns:
        Facts: ``loss``, ``grad_norm`` (before clipping), ``entropy`` and ``logprob_gap`` (means over forwarded tokens, nats),
        ``forwarded_tokens``. With no row to forward there is no step and only ``loss`` and ``grad_norm``, both 0.
    """
    rows = [row for row in rows if row.advantage != 0.0 and row.completion_ids]
    if not rows:
        return {"loss": 0.0, "grad_norm": 0.0, "forwarded_tokens": 0}
    optimizer.zero_grad()
    sums = {"loss": 0.0, "entropy": 0.0, "logprob_gap": 0.0}
    num_forwarded = 0
    for micro_rows in split_micro_batches(rows, config.micro_batch_tokens, config.micro_batch_size):
        batch = pack(micro_rows, policy.decoder.device)
        for name, value in backward(policy, batch, num_trained_tokens, temperature, config.head_chunk_tokens).items():
            sums[name] += value
        num_forwarded += len(batch.targets_C)
    grad_norm = clip_gradients(policy.decoder, config.max_grad_norm)
    optimizer.step(learning_rate)
    optimizer.zero_grad()
    means = {name: sums[name] / num_forwarded for name in ("entropy", "logprob_gap")}
    return {"loss": sums["loss"], "grad_norm": grad_norm, "forwarded_tokens": num_forwarded} | means


def backward(
    policy: Policy, batch: PackedBatch, normaliser: float, temperature: float, chunk_tokens: int
) -> dict[str, float]:
    """Forward and backward of one micro-batch; gradients add up in the parameters. Returns sums over its tokens."""
    decoder = policy.decoder
    hidden_TE = decoder(batch.tokens_T, batch.positions_T, batch.attend)
    logprobs_C, entropy_C = chunked_logprobs(
        hidden_TE[batch.predictor_C],
        decoder.head_weight_VE,
        batch.targets_C,
        temperature,
        policy.has_token_V,
        chunk_tokens,
    )
    loss = policy_gradient_loss(logprobs_C, batch.advantages_C, normaliser)
    loss.backward()
    gap_C = (logprobs_C.detach() - batch.sampled_logprobs_C).abs()
    return {"loss": loss.item(), "entropy": entropy_C.sum().item(), "logprob_gap": gap_C.sum().item()}


def clip_gradients(decoder: Decoder, max_norm: float) -> float:
    """Scale all gradients down together to ``max_norm``; returns the norm before, summed in float32 whatever their dtype."""
    grads = [parameter.grad for parameter in decoder.parameters() if parameter.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(grad, dtype=torch.float32) for grad in grads])
    total = torch.linalg.vector_norm(norms).item()
    if total > max_norm:
        for grad in grads:
            grad.mul_(max_norm / total)
    return total
