"""One update: packed micro-batches -> gradients -> clipped step. GRPO and supervised training share it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from grpo_zero.allocator import give_back_freed_memory
from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.functions import take_rows
from grpo_zero.observe.phases import phase
from grpo_zero.train.batch import PackedBatch, TrainRow, pack, split_micro_batches
from grpo_zero.train.logprobs import chunked_logprobs, head_backward
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy
from grpo_zero.train.token_loss import TokenLoss, slope


@phase("update")
def update(
    policy: Policy,
    optimizer: AdamW,
    rows: Sequence[TrainRow],
    loss: TokenLoss,
    learning_rate: float,
    config: TrainingConfig,
    temperature: float = 1.0,
) -> dict[str, float]:
    """Learn from ``rows`` in one optimizer step; in none where loss or gradient norm is not finite: then weights, moments and
    ``num_steps`` stay as they are.

    Args:
        rows: completions to forward, a group's rows together; their weights are those of the whole update.
        loss: ``train/token_loss.py`` has the two there are.
        learning_rate: of this step.
        config: micro-batch limits, chunk size, gradient clipping.
        temperature: the sampling temperature; log-probs are of the tempered distribution.

    Returns:
        Facts: ``loss``, ``grad_norm`` (before clipping), ``forwarded_tokens``, and means over forwarded tokens: ``entropy``,
        ``logprob_gap`` (nats) and the loss's own; ``skipped_updates`` is 1 without a step, else 0. With no token to forward
        there is no step, and only the first three, all 0.
    """
    rows = [row for row in rows if row.completion_ids]
    if not rows:
        return {"loss": 0.0, "grad_norm": 0.0, "forwarded_tokens": 0}
    optimizer.begin()
    parts: list[dict[str, Tensor]] = []
    num_forwarded = 0
    gives_back = not config.reuse_memory and policy.decoder.device.type == "cpu"
    for micro_rows in split_micro_batches(rows, config.micro_batch_tokens, config.micro_batch_size):
        if gives_back:
            give_back_freed_memory()
        batch = pack(micro_rows, policy.decoder.device)
        parts.append(backward(policy, batch, loss, temperature, config.head_chunk_tokens, gives_back))
        optimizer.gather()
        num_forwarded += len(batch.completion)
    with phase("optimizer"):
        grad_norm = optimizer.clip(config.max_grad_norm)  # a GPU is waited for here
        sums = {name: sum(part[name].item() for part in parts) for name in parts[0]}
        is_skipped = not (math.isfinite(sums["loss"]) and math.isfinite(grad_norm))
        if not is_skipped:
            optimizer.step(learning_rate)
        optimizer.zero_grad()
    facts = {"loss": sums.pop("loss"), "grad_norm": grad_norm, "forwarded_tokens": num_forwarded}
    facts["skipped_updates"] = int(is_skipped)
    return facts | {name: value / num_forwarded for name, value in sums.items()}


def backward(
    policy: Policy, batch: PackedBatch, loss: TokenLoss, temperature: float, chunk_tokens: int, gives_back: bool = False
) -> dict[str, Tensor]:
    """Forward and backward of one micro-batch; gradients add up in the parameters. Returns its loss and sums over its tokens.

    ``gives_back``: return free memory to the system before the head.
    """
    decoder, tokens = policy.decoder, batch.completion
    hidden_CE = take_rows(decoder(batch.tokens_T, batch.positions_T, batch.attend), batch.predictor_C)
    if gives_back:  # the holes between what is kept, before the head, where the peak is
        give_back_freed_memory()
    head = (hidden_CE.detach(), decoder.head_weight_VE, tokens.targets_C, temperature, policy.has_token_V, chunk_tokens)
    parts: list[dict[str, Tensor]] = []

    def slope_of_chunk(part: slice, logprobs_C: Tensor) -> Tensor:
        slope_C, facts = slope(loss, logprobs_C, tokens[part])
        parts.append(facts)
        return slope_C

    if loss.is_separable or len(tokens) <= chunk_tokens:
        grad_hidden_CE, logprobs_C, entropy_C = head_backward(*head, slope_of_chunk)
    else:  # a token's slope waits for its whole completion's log-probs: the head runs twice
        slope_C = slope_of_chunk(slice(None), chunked_logprobs(*head))
        grad_hidden_CE, logprobs_C, entropy_C = head_backward(*head, lambda part, _: slope_C[part])
    (hidden_CE * grad_hidden_CE).sum().backward()  # Tensor.backward(gradient) imports PyTorch's compiler, 100 MB
    decoder.scratch.clear()
    facts = {name: torch.stack([facts[name] for facts in parts]).sum() for name in parts[0]}
    gap_C = (logprobs_C - tokens.sampled_logprobs_C).abs()
    return {"entropy": entropy_C.sum(), "logprob_gap": gap_C.sum(), **facts}


@torch.no_grad()
def row_logprobs(
    decoder: Decoder, rows: Sequence[TrainRow], config: TrainingConfig, has_token_V: Tensor | None
) -> list[list[float]]:
    """Log-probs (nats) of each row's completion in a training forward, at the training temperature; no gradient."""
    flat: list[float] = []
    was_training = decoder.training
    decoder.eval()
    try:
        for micro_rows in split_micro_batches(rows, config.micro_batch_tokens, config.micro_batch_size):
            batch = pack(micro_rows, decoder.device)
            hidden_CE = decoder(batch.tokens_T, batch.positions_T, batch.attend)[batch.predictor_C]
            head = (decoder.head_weight_VE, batch.completion.targets_C, config.temperature, has_token_V)
            flat += chunked_logprobs(hidden_CE, *head, config.head_chunk_tokens).tolist()
    finally:
        decoder.train(was_training)
    values = iter(flat)
    return [list(islice(values, len(row.completion_ids))) for row in rows]
