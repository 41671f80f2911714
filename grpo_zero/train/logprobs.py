"""The vocabulary head by chunks of positions: log-probs, and gradients, without ever holding ``[tokens, vocabulary]``.

At Qwen's vocabulary one float32 copy of the logits of 8 x 1024 tokens is 8192 * 151936 * 4 bytes = 5.0 GB; a chunk of 256 is
0.16 GB, and on a CPU one is alive at a time. ``dense_logprobs`` is the plain twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from grpo_zero.model.functions import add_weight_gradient
from grpo_zero.rollout.sampler import LOWEST_LOGIT, masked_logits

SlopeOf = Callable[[slice, Tensor], Tensor]
"""From a chunk's place and its log-probs to the loss's derivative by each of them."""

CACHED_LOGITS = 2**19
"""Logits turned into probabilities at a time on a CPU: 2 MB, so that its cache holds them from one pass to the next."""


def dense_logprobs(
    hidden_CE: Tensor, head_VE: Tensor, targets_C: Tensor, temperature: float, has_token_V: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The slow twin: all logits at once, plain autograd."""
    logits_CV = masked_logits(F.linear(hidden_CE, head_VE), has_token_V) / temperature
    logprobs_CV = logits_CV.log_softmax(-1)
    entropy_C = -(logprobs_CV.exp() * logprobs_CV).nan_to_num(0.0).sum(-1)
    return logprobs_CV.gather(-1, targets_C[:, None])[:, 0], entropy_C.detach()


@torch.no_grad()
def chunked_logprobs(
    hidden_CE: Tensor,
    head_VE: Tensor,
    targets_C: Tensor,
    temperature: float,
    has_token_V: Tensor | None,
    chunk_tokens: int,
) -> Tensor:
    """``log softmax(hidden head^T / temperature)`` at the targets, float32 ``[C]``, nats; no gradient.

    Args:
        hidden_CE: hidden states that predict the targets.
        head_VE: vocabulary head.
        targets_C: int64 ids.
        temperature: the sampling temperature; trainer and sampler mean the same distribution.
        has_token_V: bool; ids without a token have probability 0, as in sampling. None = all have one.
        chunk_tokens: positions per chunk; memory grows with chunk_tokens * V, values do not depend on it.
    """
    logprobs_C = torch.empty(len(targets_C), dtype=torch.float32, device=hidden_CE.device)
    memory_CV = None
    for part in _chunks(len(targets_C), chunk_tokens):
        memory_CV = logits_CV = _logits(hidden_CE[part], head_VE, memory_CV)
        for rows, logprobs_RV in _logprobs_by_rows(logits_CV, temperature, has_token_V):
            logprobs_C[part][rows] = logprobs_RV.gather(-1, targets_C[part][rows, None])[:, 0]
    return logprobs_C


@torch.no_grad()
def head_backward(
    hidden_CE: Tensor,
    head_VE: Tensor,
    targets_C: Tensor,
    temperature: float,
    has_token_V: Tensor | None,
    chunk_tokens: int,
    slope_of: SlopeOf,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs, and the gradient of a loss of them, in one pass: each chunk's logits are computed once.

    Args:
        hidden_CE, targets_C, temperature, has_token_V, chunk_tokens: as for ``chunked_logprobs``.
        head_VE: vocabulary head; where it is to learn, its gradient is added to ``head_VE.grad``.
        slope_of: called once a chunk, in order.

    Returns:
        ``(grad_hidden_CE, logprobs_C, entropy_C)``, the entropy of each distribution in nats; the last two float32.
    """
    grad_hidden_CE = torch.empty_like(hidden_CE)
    logprobs_C = torch.empty(len(targets_C), dtype=torch.float32, device=hidden_CE.device)
    entropy_C = torch.empty_like(logprobs_C)
    memory_CV = None
    for part in _chunks(len(targets_C), chunk_tokens):
        target_C1 = targets_C[part, None]
        memory_CV = probs_CV = _logits(hidden_CE[part], head_VE, memory_CV)
        for rows, logprobs_RV in _logprobs_by_rows(probs_CV, temperature, has_token_V):
            logprobs_C[part][rows] = logprobs_RV.gather(-1, target_C1[rows])[:, 0]
            probs_RV = torch.exp(logprobs_RV, out=probs_CV[rows])  # over the logits
            entropy_C[part][rows] = -logprobs_RV.mul_(probs_RV).sum(-1)
        del logprobs_RV
        scale_C1 = slope_of(part, logprobs_C[part])[:, None] / temperature
        # d log p_y / d logit_v = [v = y] - p_v
        grad_CV = probs_CV.mul_(-scale_C1).scatter_add_(-1, target_C1, scale_C1).to(head_VE.dtype)
        torch.matmul(grad_CV, head_VE, out=grad_hidden_CE[part])
        if head_VE.requires_grad:
            gradient_VE = add_weight_gradient(head_VE, grad_CV, hidden_CE[part])
            head_VE.grad = head_VE.grad if gradient_VE is None else gradient_VE
    return grad_hidden_CE, logprobs_C, entropy_C


def _chunks(num_tokens: int, chunk_tokens: int) -> Iterator[slice]:
    return (slice(start, start + chunk_tokens) for start in range(0, num_tokens, chunk_tokens))


def _logits(hidden_CE: Tensor, head_VE: Tensor, memory_CV: Tensor | None) -> Tensor:
    """Float32 ``[C, V]``, written over ``memory_CV``, which is at least as long."""
    out_CV = None if memory_CV is None else memory_CV[: len(hidden_CE)]
    if head_VE.dtype == torch.float32:
        return torch.mm(hidden_CE, head_VE.T, out=out_CV)
    logits_CV = F.linear(hidden_CE, head_VE)
    return logits_CV.float() if out_CV is None else out_CV.copy_(logits_CV)


def _logprobs_by_rows(
    logits_CV: Tensor, temperature: float, has_token_V: Tensor | None
) -> Iterator[tuple[slice, Tensor]]:
    """Place and log-probs ``[R, V]`` of some rows after the other, on a CPU as many as its cache holds. ``logits_CV`` is worked
    on in place, and free to be overwritten where its rows have come.
    """
    num_rows, vocab_size = logits_CV.shape
    step = max(CACHED_LOGITS // vocab_size, 1) if logits_CV.device.type == "cpu" else num_rows
    for rows in _chunks(num_rows, step):
        logits_RV = logits_CV[rows]
        if temperature != 1.0:
            logits_RV /= temperature
        if has_token_V is not None:  # after the division, which would make the lowest value infinite
            logits_RV.masked_fill_(~has_token_V, LOWEST_LOGIT)
        yield rows, logits_RV.log_softmax(-1)
