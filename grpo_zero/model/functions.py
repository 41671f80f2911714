"""The sub-blocks of training with a hand-written backward: fewer passes over memory, and less kept for backward.

Kept are a sub-block's input, one number a token, and the one product that is dear to compute again; what is elementwise is
computed again. Weight gradients of later micro-batches are added in place, without a temporary of the weight's size. The modules
in ``layers.py`` are the plain twins: what is written here must equal their autograd.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from grpo_zero.model.scratch import Scratch


def reciprocal_rms(x_TE: Tensor, eps: float) -> Tensor:
    """``1 / sqrt(mean(x^2) + eps)`` over the last axis, ``[T, 1]``, in float32 or wider (1910.07467, eq. 4)."""
    dtype = torch.promote_types(x_TE.dtype, torch.float32)
    norm_T1 = torch.linalg.vector_norm(x_TE, dim=-1, keepdim=True, dtype=dtype)
    return (norm_T1.square() / x_TE.shape[-1] + eps).rsqrt()


def add_weight_gradient(weight_OI: Tensor, grad_TO: Tensor, x_TI: Tensor) -> Tensor | None:
    """``grad^T x``: returned where the weight has no gradient yet, else added to that in place.

    A weight may have a ``spare_gradient``, memory of an earlier one (``train/optimizer.py``): a first one is written there.
    """
    spare_OI = getattr(weight_OI, "spare_gradient", None)
    if weight_OI.grad is not None:
        weight_OI.grad.addmm_(grad_TO.T, x_TI)
    elif spare_OI is not None:
        weight_OI.grad = torch.mm(grad_TO.T, x_TI, out=spare_OI)
    else:
        return grad_TO.T @ x_TI
    return None


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """``x[index]``, whose backward adds up the gradients of a row taken several times in a fixed order.

    On a CPU that of indexing adds them as the threads happen to come, which two equal runs do not share.
    """
    return x.index_select(0, index) if x.device.type == "cpu" else x[index]


class Linear(Function):
    """``x W^T + b``."""

    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_TI if weight_OI.requires_grad else None)
        ctx.weight_OI = weight_OI  # the leaf itself: its .grad is added to
        return F.linear(x_TI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, grad_TO: Tensor) -> tuple[Tensor | None, ...]:
        (x_TI,), (_, needs_weight, needs_bias) = ctx.saved_tensors, ctx.needs_input_grad
        grad_weight_OI = add_weight_gradient(ctx.weight_OI, grad_TO, x_TI) if needs_weight else None
        return grad_TO @ ctx.weight_OI, grad_weight_OI, grad_TO.sum(0) if needs_bias else None


class NormLinear(Function):
    """``Linear`` of an RMSNorm; the normed input is not kept."""

    @staticmethod
    def forward(
        ctx: Any, x_TE: Tensor, scale_E: Tensor, eps: float, weight_OE: Tensor, bias_O: Tensor | None
    ) -> Tensor:
        inverse_T1 = reciprocal_rms(x_TE, eps)
        ctx.save_for_backward(x_TE, inverse_T1, scale_E)
        ctx.weight_OE = weight_OE
        return F.linear(_scaled(x_TE * inverse_T1, scale_E), weight_OE, bias_O)

    @staticmethod
    def backward(ctx: Any, grad_TO: Tensor) -> tuple[Tensor | None, ...]:
        x_TE, inverse_T1, scale_E = ctx.saved_tensors
        _, needs_scale, _, needs_weight, needs_bias = ctx.needs_input_grad
        normed_TE = x_TE * inverse_T1
        grad_weight_OE = None
        if needs_weight:
            grad_weight_OE = add_weight_gradient(ctx.weight_OE, grad_TO, _scaled(normed_TE, scale_E))
        grad_x_TE, grad_scale_E = _norm_backward(grad_TO @ ctx.weight_OE, normed_TE, inverse_T1, scale_E)
        grad_bias_O = grad_TO.sum(0) if needs_bias else None
        return grad_x_TE, grad_scale_E if needs_scale else None, None, grad_weight_OE, grad_bias_O


class NormGatedMLP(Function):
    """``down(silu(gate) * up)`` of an RMSNorm (SwiGLU, 2002.05202).

    ``keeps_gate_up``: keep the product of the first matrix, ``[T, 2F]`` and most of what a block holds, or compute it again.
    ``scratch``: where what nobody keeps is written.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_TE: Tensor,
        scale_E: Tensor,
        eps: float,
        gate_up_2FE: Tensor,
        gate_up_bias_2F: Tensor | None,
        down_EF: Tensor,
        down_bias_E: Tensor | None,
        keeps_gate_up: bool,
        scratch: Scratch,
    ) -> Tensor:
        inverse_T1 = reciprocal_rms(x_TE, eps)
        shape = len(x_TE), len(gate_up_2FE)
        product_T2F = x_TE.new_empty(shape) if keeps_gate_up else scratch.take("gate and up", shape, x_TE)
        _linear(_scaled(x_TE * inverse_T1, scale_E), gate_up_2FE, gate_up_bias_2F, product_T2F)
        ctx.save_for_backward(x_TE, inverse_T1, scale_E, gate_up_bias_2F, product_T2F if keeps_gate_up else None)
        ctx.gate_up_2FE, ctx.down_EF, ctx.scratch = gate_up_2FE, down_EF, scratch
        gate_TF, up_TF = product_T2F.chunk(2, dim=-1)
        inner_TF = torch.ops.aten.silu.out(gate_TF, out=scratch.take("inner", gate_TF.shape, x_TE))
        return F.linear(inner_TF.mul_(up_TF), down_EF, down_bias_E)

    @staticmethod
    def backward(ctx: Any, grad_TE: Tensor) -> tuple[Tensor | None, ...]:
        x_TE, inverse_T1, scale_E, gate_up_bias_2F, product_T2F = ctx.saved_tensors
        _, needs_scale, _, needs_gate_up, needs_gate_up_bias, needs_down, needs_down_bias, *_ = ctx.needs_input_grad
        scratch: Scratch = ctx.scratch
        normed_TE = x_TE * inverse_T1
        if product_T2F is None:
            product_T2F = scratch.take("gate and up", (len(x_TE), len(ctx.gate_up_2FE)), x_TE)
            _linear(_scaled(normed_TE, scale_E), ctx.gate_up_2FE, gate_up_bias_2F, product_T2F)
        gate_TF, up_TF = product_T2F.chunk(2, dim=-1)
        silu_TF = torch.ops.aten.silu.out(gate_TF, out=scratch.take("silu", gate_TF.shape, x_TE))
        inner_TF = scratch.take("inner", gate_TF.shape, x_TE)
        grad_down_EF = None
        if needs_down:
            grad_down_EF = add_weight_gradient(ctx.down_EF, grad_TE, torch.mul(silu_TF, up_TF, out=inner_TF))
        grad_inner_TF = torch.mm(grad_TE, ctx.down_EF, out=inner_TF)
        grad_T2F = scratch.take("gradient of gate and up", product_T2F.shape, x_TE)
        grad_gate_TF, grad_up_TF = grad_T2F.chunk(2, dim=-1)
        torch.mul(grad_inner_TF, silu_TF, out=grad_up_TF)
        torch.ops.aten.silu_backward.grad_input(grad_inner_TF.mul_(up_TF), gate_TF, grad_input=grad_gate_TF)
        del silu_TF, inner_TF, grad_inner_TF, product_T2F, gate_TF, up_TF
        grad_gate_up_2FE = None
        if needs_gate_up:
            grad_gate_up_2FE = add_weight_gradient(ctx.gate_up_2FE, grad_T2F, _scaled(normed_TE, scale_E))
        grad_x_TE, grad_scale_E = _norm_backward(grad_T2F @ ctx.gate_up_2FE, normed_TE, inverse_T1, scale_E)
        return (
            grad_x_TE,
            grad_scale_E if needs_scale else None,
            None,
            grad_gate_up_2FE,
            grad_T2F.sum(0) if needs_gate_up_bias else None,
            grad_down_EF,
            grad_TE.sum(0) if needs_down_bias else None,
            None,
            None,
        )


class Embedding(Function):
    """Rows of a table. Where the table already has a gradient, from a tied head, this one's is added to its few rows."""

    @staticmethod
    def forward(ctx: Any, tokens_T: Tensor, table_VE: Tensor) -> Tensor:
        ctx.save_for_backward(tokens_T)
        ctx.table_VE = table_VE
        return F.embedding(tokens_T, table_VE)

    @staticmethod
    def backward(ctx: Any, grad_TE: Tensor) -> tuple[None, Tensor | None]:
        (tokens_T,), table_VE = ctx.saved_tensors, ctx.table_VE
        if not ctx.needs_input_grad[1]:
            return None, None
        spare_VE = getattr(table_VE, "spare_gradient", None)
        if table_VE.grad is None and spare_VE is not None:
            table_VE.grad = spare_VE.zero_()
        if table_VE.grad is None and table_VE.device.type == "cpu":  # summed as into a spare one
            return None, torch.zeros_like(table_VE).index_add_(0, tokens_T, grad_TE)
        if table_VE.grad is None:
            return None, torch.ops.aten.embedding_dense_backward(grad_TE, tokens_T, len(table_VE), -1, False)
        if table_VE.device.type == "cpu":
            table_VE.grad.index_add_(0, tokens_T, grad_TE)
        else:  # sorts, so that equal tokens are added in a fixed order
            table_VE.grad.index_put_((tokens_T,), grad_TE, accumulate=True)
        return None, None


class Rotate(Function):
    """Each head vector turned by its position's angle (RoFormer, 2104.09864, section 3.2.2); nothing is kept but the tables."""

    @staticmethod
    def forward(ctx: Any, x_TND: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
        ctx.tables = cos_T1D, sin_T1D
        return turn(x_TND, cos_T1D, sin_T1D)

    @staticmethod
    def backward(ctx: Any, grad_TND: Tensor) -> tuple[Tensor, None, None]:
        cos_T1D, sin_T1D = ctx.tables
        return turn(grad_TND, cos_T1D, -sin_T1D), None, None


def turn(x_TND: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
    """``(x1 cos - x2 sin, x2 cos + x1 sin)`` of the two halves of each head vector, as a new tensor."""
    half = x_TND.shape[-1] // 2
    out_TND = x_TND * cos_T1D
    sin_T1H = sin_T1D[..., :half]
    out_TND[..., :half].addcmul_(x_TND[..., half:], sin_T1H, value=-1)
    out_TND[..., half:].addcmul_(x_TND[..., :half], sin_T1H)
    return out_TND


def _linear(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, out_TO: Tensor) -> None:
    """``F.linear`` into memory that is there."""
    if bias_O is None:
        torch.mm(x_TI, weight_OI.T, out=out_TO)
    else:
        torch.addmm(bias_O, x_TI, weight_OI.T, out=out_TO)


def _scaled(normed_TE: Tensor, scale_E: Tensor) -> Tensor:
    """The scale is multiplied after the cast, as the released models do."""
    return normed_TE.to(scale_E.dtype) * scale_E


def _norm_backward(grad_TE: Tensor, normed_TE: Tensor, inverse_T1: Tensor, scale_E: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of an RMSNorm's input and scale, with ``normed = x * inverse`` in float32.

    ``d x = inverse (g scale - normed mean(g scale normed))``.
    """
    wide_TE = grad_TE.to(normed_TE.dtype)
    grad_scale_E = (wide_TE * normed_TE).sum(0).to(scale_E.dtype)
    slope_TE = wide_TE * scale_E
    mean_T1 = torch.linalg.vecdot(slope_TE, normed_TE)[:, None] / normed_TE.shape[-1]
    slope_TE.addcmul_(normed_TE, mean_T1, value=-1).mul_(inverse_T1)
    return slope_TE.to(grad_TE.dtype), grad_scale_E
