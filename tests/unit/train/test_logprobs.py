"""The chunked vocabulary head against all logits at once: values, entropies, gradients, memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from grpo_zero.train import logprobs as logprobs_module
from grpo_zero.train.logprobs import chunked_logprobs, dense_logprobs, head_backward

NUM, WIDTH, VOCAB = 13, 16, 50
HAS_TOKEN_V = torch.arange(VOCAB) % 5 != 4


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, head, targets that all have a token, and a weight for each log-prob."""
    generator = torch.Generator().manual_seed(0)
    hidden_CE = torch.randn(NUM, WIDTH, generator=generator).to(dtype).requires_grad_()
    head_VE = torch.randn(VOCAB, WIDTH, generator=generator).to(dtype).requires_grad_()
    targets_C = torch.randint(VOCAB // 5, (NUM,), generator=generator) * 5
    return hidden_CE, head_VE, targets_C, torch.randn(NUM, generator=generator)


def dense(*arguments, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Log-probs, entropies, and the gradients of a weighted sum of the log-probs, by autograd."""
    hidden_CE, head_VE, targets_C, weights_C = inputs(dtype)
    logprobs_C, entropy_C = dense_logprobs(hidden_CE, head_VE, targets_C, *arguments)
    assert not entropy_C.requires_grad
    (logprobs_C * weights_C).sum().backward()
    return [logprobs_C.detach(), entropy_C, hidden_CE.grad, head_VE.grad]


def chunked(*arguments, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """The same by hand, the weights as slopes."""
    hidden_CE, head_VE, targets_C, weights_C = inputs(dtype)
    grad_hidden_CE, logprobs_C, entropy_C = head_backward(
        hidden_CE, head_VE, targets_C, *arguments, slope_of=lambda part, _: weights_C[part]
    )
    return [logprobs_C, entropy_C, grad_hidden_CE, head_VE.grad]


@pytest.mark.parametrize("has_token_V", [None, HAS_TOKEN_V], ids=["all ids", "masked"])
@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
@pytest.mark.parametrize("chunk_tokens", [1, 4, 13, 1000])
@pytest.mark.parametrize("rows_at_a_time", [1, 3, 1000])
def test_chunked_equals_dense(
    monkeypatch: pytest.MonkeyPatch,
    rows_at_a_time: int,
    chunk_tokens: int,
    temperature: float,
    has_token_V: Tensor | None,
) -> None:
    """M01, N01."""
    monkeypatch.setattr(logprobs_module, "CACHED_LOGITS", rows_at_a_time * VOCAB)
    expected = dense(temperature, has_token_V)
    for found, value in zip(chunked(temperature, has_token_V, chunk_tokens), expected, strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-5)
    hidden_CE, head_VE, targets_C, _ = inputs()
    alone_C = chunked_logprobs(hidden_CE, head_VE, targets_C, temperature, has_token_V, chunk_tokens)
    torch.testing.assert_close(alone_C, expected[0], rtol=1e-5, atol=1e-5)
    assert not alone_C.requires_grad


def test_slopes_are_asked_for_once_a_chunk_with_that_chunks_logprobs() -> None:
    hidden_CE, head_VE, targets_C, _ = inputs()
    seen: list[Tensor] = []

    def slope_of(part: slice, logprobs_C: Tensor) -> Tensor:
        assert part.start == sum(map(len, seen))
        seen.append(logprobs_C.clone())
        return torch.zeros_like(logprobs_C)

    _, logprobs_C, _ = head_backward(hidden_CE, head_VE, targets_C, 1.0, None, 5, slope_of)
    assert [len(part) for part in seen] == [5, 5, 3]
    assert torch.equal(torch.cat(seen), logprobs_C)


def test_the_heads_gradient_is_added_to_what_is_there() -> None:
    hidden_CE, head_VE, targets_C, weights_C = inputs()
    *_, expected = dense(1.0, None)
    for _ in range(2):
        head_backward(hidden_CE, head_VE, targets_C, 1.0, None, 4, lambda part, _: weights_C[part])
    torch.testing.assert_close(head_VE.grad, 2 * expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_dense_is_the_log_softmax_of_the_tempered_logits(temperature: float) -> None:
    """N01, in float64 and in other words."""
    hidden_CE, head_VE, targets_C, _ = (x.detach() for x in inputs())
    logits_CV = (hidden_CE.double() @ head_VE.double().T) / temperature
    probs_CV = torch.where(HAS_TOKEN_V, (logits_CV - logits_CV.amax()).exp(), 0.0)
    probs_CV /= probs_CV.sum(-1, keepdim=True)
    logprobs_C, entropy_C = dense_logprobs(hidden_CE, head_VE, targets_C, temperature, HAS_TOKEN_V)
    expected_C = probs_CV[torch.arange(NUM), targets_C].log()
    torch.testing.assert_close(logprobs_C.double(), expected_C, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        entropy_C.double(), -torch.special.xlogy(probs_CV, probs_CV).sum(-1), rtol=1e-5, atol=1e-5
    )


def test_ids_without_a_token_get_no_gradient() -> None:
    *_, grad_head_VE = chunked(1.0, HAS_TOKEN_V, 4)
    assert (grad_head_VE[~HAS_TOKEN_V] == 0).all()
    assert (grad_head_VE[HAS_TOKEN_V] != 0).any(-1).all()


def test_a_sure_distribution_has_entropy_zero_and_no_nan() -> None:
    hidden_CE = torch.full((2, WIDTH), 100.0)
    head_VE = torch.zeros(VOCAB, WIDTH)
    head_VE[0], head_VE[1] = 1.0, -1.0
    grad_hidden_CE, logprobs_C, entropy_C = head_backward(
        hidden_CE, head_VE, torch.tensor([0, 1]), 0.5, HAS_TOKEN_V, 1, lambda _, logprobs_C: torch.ones_like(logprobs_C)
    )
    torch.testing.assert_close(entropy_C, torch.zeros(2))
    assert logprobs_C.tolist() == [0.0, pytest.approx(-6400.0)]
    assert grad_hidden_CE.isfinite().all()


def test_a_frozen_head_gets_no_gradient_and_the_hidden_states_do() -> None:
    hidden_CE, head_VE, targets_C, weights_C = inputs()
    _, _, expected_CE, _ = dense(1.0, None)
    head_VE = head_VE.detach()
    found_CE, *_ = head_backward(hidden_CE, head_VE, targets_C, 1.0, None, 4, lambda part, _: weights_C[part])
    assert head_VE.grad is None
    torch.testing.assert_close(found_CE, expected_CE, rtol=1e-5, atol=1e-5)


def test_bf16_weights_give_float32_logprobs() -> None:
    ours = chunked(1.0, HAS_TOKEN_V, 4, dtype=torch.bfloat16)
    theirs = dense(1.0, HAS_TOKEN_V, dtype=torch.bfloat16)
    assert [x.dtype for x in ours] == [torch.float32, torch.float32, torch.bfloat16, torch.bfloat16]
    for found, expected, tolerance in zip(ours, theirs, (1e-5, 1e-5, 0.05, 0.05), strict=True):
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


class LargestTensor(TorchDispatchMode):
    """Remembers the largest number of elements that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


@pytest.mark.parametrize("num_tokens", [64, 256])
def test_memory_grows_with_the_chunk_not_with_the_tokens(num_tokens: int) -> None:
    """M01: nothing of the size [tokens, vocabulary] in forward or backward."""
    vocab, width, chunk = 500, 4, 8
    hidden_CE = torch.randn(num_tokens, width, requires_grad=True)
    head_VE = torch.randn(vocab, width, requires_grad=True)
    targets_C = torch.zeros(num_tokens, dtype=torch.int64)
    with LargestTensor() as largest:
        head_backward(
            hidden_CE, head_VE, targets_C, 1.0, None, chunk, lambda _, logprobs_C: torch.ones_like(logprobs_C)
        )
    assert largest.numel == chunk * vocab
    with LargestTensor() as largest:
        dense_logprobs(hidden_CE, head_VE, targets_C, 1.0, None)[0].sum().backward()
    assert largest.numel == num_tokens * vocab
