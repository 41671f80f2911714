"""Log-probs of completion tokens without ever holding ``[tokens, vocabulary]``.

The vocabulary head runs over chunks of positions, forward and again in backward. At Qwen's vocabulary one float32 copy of the
logits of 8 x 1024 tokens is 8192 * 151936 * 4 bytes = 5.0 GB; a chunk of 1024 is 0.6 GB. ``dense_logprobs`` is the plain twin.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from grpo_zero.rollout.sampler import masked_logits


def dense_logprobs(
    hidden_CE: Tensor, head_VE: Tensor, targets_C: Tensor, temperature: float, has_token_V: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The slow twin of ``chunked_logprobs``: all logits at once, plain autograd."""
    logits_CV = masked_logits(F.linear(hidden_CE, head_VE), has_token_V) / temperature
    logprobs_CV = logits_CV.log_softmax(-1)
    entropy_C = -(logprobs_CV.exp() * logprobs_CV).nan_to_num(0.0).sum(-1)
    return logprobs_CV.gather(-1, targets_C[:, None])[:, 0], entropy_C.detach()


def chunked_logprobs(
    hidden_CE: Tensor,
    head_VE: Tensor,
    targets_C: Tensor,
    temperature: float,
    has_token_V: Tensor | None,
    chunk_tokens: int,
) -> tuple[Tensor, Tensor]:
    """``log softmax(hidden head^T / temperature)`` at the targets, and the entropy of each distribution.

    Args:
        hidden_CE: hidden states that predict the targets.
        head_VE: vocabulary head.
        targets_C: int64 ids.
        temperature: the sampling temperature; trainer and sampler mean the same distribution.
        has_token_V: bool; ids without a token have probability 0, as in sampling. None = all have one.
        chunk_tokens: positions per chunk; memory grows with chunk_tokens * V, values do not depend on it.

    Returns:
        ``(logprobs_C, entropy_C)``, float32, nats; the gradient flows through the log-probs, not through the entropy.
    """
    return _ChunkedHead.apply(hidden_CE, head_VE, targets_C, temperature, has_token_V, chunk_tokens)


class _ChunkedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_CE: Tensor,
        head_VE: Tensor,
        targets_C: Tensor,
        temperature: float,
        has_token_V: Tensor | None,
        chunk_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        logprobs_C = torch.empty(len(targets_C), dtype=torch.float32, device=hidden_CE.device)
        entropy_C = torch.empty_like(logprobs_C)
        log_total_C = torch.empty_like(logprobs_C)
        for start in range(0, len(targets_C), chunk_tokens):
            part = slice(start, start + chunk_tokens)
            logits_CV = _scaled_logits(hidden_CE[part], head_VE, temperature, has_token_V)
            log_total = logits_CV.logsumexp(-1)
            all_logprobs_CV = logits_CV.sub_(log_total[:, None])
            logprobs_C[part] = all_logprobs_CV.gather(-1, targets_C[part, None])[:, 0]
            # Masked ids have p = 0 and a finite log-prob, so no NaN arises in p log p.
            entropy_C[part] = -all_logprobs_CV.exp().mul_(all_logprobs_CV).sum(-1)
            log_total_C[part] = log_total
        ctx.save_for_backward(hidden_CE, head_VE, targets_C, has_token_V, log_total_C)
        ctx.temperature, ctx.chunk_tokens = temperature, chunk_tokens
        ctx.mark_non_differentiable(entropy_C)
        return logprobs_C, entropy_C

    @staticmethod
    def backward(ctx: Any, grad_C: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden_CE, head_VE, targets_C, has_token_V, log_total_C = ctx.saved_tensors
        grad_hidden_CE = torch.empty_like(hidden_CE)
        grad_head_VE = torch.zeros_like(head_VE) if ctx.needs_input_grad[1] else None
        for start in range(0, len(targets_C), ctx.chunk_tokens):
            part = slice(start, start + ctx.chunk_tokens)
            scale_C1 = grad_C[part, None] / ctx.temperature
            logits_CV = _scaled_logits(hidden_CE[part], head_VE, ctx.temperature, has_token_V)
            # d log p_y / d logit_v = [v = y] - p_v
            grad_CV = logits_CV.sub_(log_total_C[part, None]).exp_().mul_(-scale_C1)
            grad_CV.scatter_add_(-1, targets_C[part, None], scale_C1)
            grad_CV = grad_CV.to(head_VE.dtype)
            torch.matmul(grad_CV, head_VE, out=grad_hidden_CE[part])
            if grad_head_VE is not None:
                grad_head_VE.addmm_(grad_CV.T, hidden_CE[part])
        return grad_hidden_CE, grad_head_VE, None, None, None, None


def _scaled_logits(hidden_CE: Tensor, head_VE: Tensor, temperature: float, has_token_V: Tensor | None) -> Tensor:
    logits_CV = F.linear(hidden_CE, head_VE).float()
    if temperature != 1.0:
        logits_CV = logits_CV / temperature
    return masked_logits(logits_CV, has_token_V)  # after the division, which would make the lowest value infinite
