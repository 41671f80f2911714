"""Attention over packed groups on a CPU, with a hand-written backward that keeps the stream alone.

Autograd would keep both rectangles of each layer: queries, every completion's copy of its prompt's keys and values, the output.
Here backward lays them out again, which is copying; the products are PyTorch's flash kernels. The plain twin is ``PackedGroups``
under autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from grpo_zero.model.rectangles import Completions, Rectangle

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class CompactAttention(Function):
    """What ``PackedGroups`` computes; kept are inputs, output and a number for each head of each slot of a rectangle.

    ``mask``: of ``PackedGroups.mask``, None without completions.
    """

    @staticmethod
    def forward(
        ctx: Any,
        prompts: Rectangle,
        completions: Completions | None,
        mask: Tensor | None,
        q_THD: Tensor,
        k_TKD: Tensor,
        v_TKD: Tensor,
    ) -> Tensor:
        share = q_THD.shape[1] // k_TKD.shape[1]
        v_TKD = v_TKD.contiguous()  # else the product it is a part of would be kept
        out_THD = torch.empty(q_THD.shape, dtype=q_THD.dtype)
        k_prompt, v_prompt = prompts.lay(k_TKD).transpose(1, 2), prompts.lay(v_TKD).transpose(1, 2)
        q = prompts.lay(q_THD).transpose(1, 2)
        keys = k_prompt.repeat_interleave(share, dim=1), v_prompt.repeat_interleave(share, dim=1)
        out, prompt_sums = _flash(q, *keys, 0.0, True)
        out_THD.index_copy_(0, prompts.stream_index, prompts.pick(out.transpose(1, 2)))
        own_sums = None
        if completions is not None:
            own = completions.rectangle
            k, v = completions.with_prompt(k_prompt, k_TKD), completions.with_prompt(v_prompt, v_TKD)
            q = _folded(own.lay(q_THD), share)
            out, own_sums = _flash(q, k, v, 0.0, False, attn_mask=mask)
            out_THD.index_copy_(0, own.stream_index, own.pick(_unfolded(out, share)))
        ctx.layout = prompts, completions, mask
        ctx.save_for_backward(q_THD, k_TKD, v_TKD, out_THD, prompt_sums, own_sums)
        return out_THD

    @staticmethod
    def backward(ctx: Any, grad_THD: Tensor) -> tuple[None, None, None, Tensor, Tensor, Tensor]:
        prompts, completions, mask = ctx.layout
        q_THD, k_TKD, v_TKD, out_THD, prompt_sums, own_sums = ctx.saved_tensors
        share = q_THD.shape[1] // k_TKD.shape[1]
        grad_q_THD, grad_k_TKD, grad_v_TKD = (torch.empty(x.shape, dtype=x.dtype) for x in (q_THD, k_TKD, v_TKD))
        k_prompt, v_prompt = prompts.lay(k_TKD).transpose(1, 2), prompts.lay(v_TKD).transpose(1, 2)
        grad_k_prompt, grad_v_prompt = torch.zeros_like(k_prompt), torch.zeros_like(v_prompt)
        if completions is not None:
            own = completions.rectangle
            k, v = completions.with_prompt(k_prompt, k_TKD), completions.with_prompt(v_prompt, v_TKD)
            grad, q, out = (_folded(x, share) for x in (_gradient(own, grad_THD), own.lay(q_THD), own.lay(out_THD)))
            grad_q, grad_k, grad_v = _flash_backward(grad, q, k, v, out, own_sums, 0.0, False, attn_mask=mask)
            prompt_max = k_prompt.shape[2]
            grad_q_THD.index_copy_(0, own.stream_index, own.pick(_unfolded(grad_q, share)))
            grad_k_TKD.index_copy_(0, own.stream_index, own.pick(grad_k[:, :, prompt_max:].transpose(1, 2)))
            grad_v_TKD.index_copy_(0, own.stream_index, own.pick(grad_v[:, :, prompt_max:].transpose(1, 2)))
            grad_k_prompt.index_add_(0, completions.prompt_of_N, grad_k[:, :, :prompt_max])
            grad_v_prompt.index_add_(0, completions.prompt_of_N, grad_v[:, :, :prompt_max])
            del grad, q, k, v, out, grad_q, grad_k, grad_v
        grad, q, out = (
            x.transpose(1, 2) for x in (_gradient(prompts, grad_THD), prompts.lay(q_THD), prompts.lay(out_THD))
        )
        keys = k_prompt.repeat_interleave(share, dim=1), v_prompt.repeat_interleave(share, dim=1)
        grad_q, grad_k, grad_v = _flash_backward(grad, q, *keys, out, prompt_sums, 0.0, True)
        grad_k_prompt += grad_k.unflatten(1, (-1, share)).sum(2)
        grad_v_prompt += grad_v.unflatten(1, (-1, share)).sum(2)
        grad_q_THD.index_copy_(0, prompts.stream_index, prompts.pick(grad_q.transpose(1, 2)))
        grad_k_TKD.index_copy_(0, prompts.stream_index, prompts.collect(grad_k_prompt.transpose(1, 2)))
        grad_v_TKD.index_copy_(0, prompts.stream_index, prompts.collect(grad_v_prompt.transpose(1, 2)))
        return None, None, None, grad_q_THD, grad_k_TKD, grad_v_TKD


def _gradient(rectangle: Rectangle, grad_THD: Tensor) -> Tensor:
    """Of the output: nothing flows from padded slots, nor from a shared token's twice."""
    return rectangle.lay(grad_THD).masked_fill_(~rectangle.is_own[:, :, None, None], 0.0)


def _folded(x: Tensor, share: int) -> Tensor:
    """``[N, length, H, D] -> [N, K, share * length, D]``: heads that share a key head become more queries of it."""
    return x.transpose(1, 2).unflatten(1, (-1, share)).flatten(2, 3)


def _unfolded(x: Tensor, share: int) -> Tensor:
    """The way back."""
    return x.unflatten(2, (share, -1)).flatten(1, 2).transpose(1, 2)
