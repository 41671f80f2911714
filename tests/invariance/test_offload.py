"""Gradients on the host change nothing: weights, states and facts are those of the plain optimizer, whatever the chunks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from helpers.tiny import policy_of, random_rows, tiny_decoder
from torch import Tensor, nn

from grpo_zero.config import TrainingConfig
from grpo_zero.model.decoder import Decoder
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.train import offload
from grpo_zero.train import optimizer as optimizer_module
from grpo_zero.train.batch import TrainRow, pack, split_micro_batches
from grpo_zero.train.offload import HostGradients
from grpo_zero.train.optimizer import AdamW, HostAdamW, join_master, make_optimizer
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import backward, update

LOSS = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
SETTINGS = TrainingConfig(micro_batch_size=2, max_grad_norm=0.05)


def rows_of(step: int) -> list[TrainRow]:
    return weigh(random_rows(step, [3, 4]), "token", 9)


def trained(
    optimizer: AdamW, decoder: Decoder, num_updates: int = 4, config: TrainingConfig = SETTINGS
) -> list[dict[str, float]]:
    return [
        update(policy_of(decoder), optimizer, rows_of(step), LOSS, learning_rate=1e-3, config=config)
        for step in range(num_updates)
    ]


def backwards(optimizer: AdamW, decoder: Decoder, rows: list[TrainRow]) -> int:
    """Backward of each micro-batch, as an update does it; returns how many there were."""
    micro_batches = list(split_micro_batches(rows, SETTINGS.micro_batch_tokens, SETTINGS.micro_batch_size))
    for micro_rows in micro_batches:
        backward(policy_of(decoder), pack(micro_rows, decoder.device), LOSS, 1.0, SETTINGS.head_chunk_tokens)
        optimizer.gather()
    return len(micro_batches)


def summed_gradients(decoder: Decoder, rows: list[TrainRow]) -> dict[str, Tensor]:
    """The plain way: each micro-batch's gradients by themselves, added up in float32."""
    sums: dict[str, Tensor] = {}
    for micro_rows in split_micro_batches(rows, SETTINGS.micro_batch_tokens, SETTINGS.micro_batch_size):
        decoder.zero_grad()
        backward(policy_of(decoder), pack(micro_rows, decoder.device), LOSS, 1.0, SETTINGS.head_chunk_tokens)
        for name, parameter in decoder.named_parameters():
            sums[name] = sums.get(name, 0.0) + parameter.grad.float()
    decoder.zero_grad()
    return sums


def stepped_plainly(optimizer: AdamW, decoder: Decoder, rows: list[TrainRow]) -> float:
    """A clipped step from the float32 sums; returns the norm before."""
    for name, grad in summed_gradients(decoder, rows).items():
        decoder.get_parameter(name).grad = grad
    norm = optimizer.clip(SETTINGS.max_grad_norm)
    optimizer.step(1e-3)
    optimizer.zero_grad()
    return norm


@pytest.mark.parametrize("moment_bits", [32, 8])
@pytest.mark.parametrize("chunk", [256, 2**20])
@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_float32_updates_equal_the_plain_ones_bit_for_bit(
    family: str, moment_bits: int, chunk: int, micro_batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one micro-batch: the plain update. Of several, whose sums that one takes within its products: its optimizer on
    gradients that were added up one by one."""
    monkeypatch.setattr(optimizer_module, "HOST_CHUNK", chunk)
    plain, ours = tiny_decoder(family), tiny_decoder(family)
    twin = AdamW(plain.named_parameters(), weight_decay=0.1, moment_bits=moment_bits, states_on_host=True)
    optimizer = HostAdamW(ours.named_parameters(), weight_decay=0.1, moment_bits=moment_bits)
    config = replace(SETTINGS, micro_batch_size=micro_batch_size)
    norms = [facts["grad_norm"] for facts in trained(optimizer, ours, config=config)]
    assert min(norms) > config.max_grad_norm, "every step is clipped"
    if micro_batch_size is None:
        assert [facts["grad_norm"] for facts in trained(twin, plain, config=config)] == norms
    else:
        assert [stepped_plainly(twin, plain, rows_of(step)) for step in range(4)] == norms
    for name, parameter in plain.named_parameters():
        assert torch.equal(ours.get_parameter(name), parameter), name
    assert optimizer.tensors().keys() == twin.tensors().keys()
    for name, tensor in twin.tensors().items():
        assert torch.equal(optimizer.tensors()[name], tensor), name


def test_bf16_gradients_add_up_in_float32(family: str) -> None:
    decoder = tiny_decoder(family).bfloat16()
    rows = rows_of(0)
    expected = summed_gradients(decoder, rows)
    optimizer = HostAdamW(decoder.named_parameters())
    optimizer.begin()
    assert backwards(optimizer, decoder, rows) > 2
    norm = optimizer.clip(1e9)
    for name, grad in optimizer.gradients.values().items():
        assert torch.equal(grad, expected[name].flatten()), name
    exact = torch.cat([grad.flatten() for grad in expected.values()]).double().norm().item()
    assert norm == pytest.approx(exact, rel=1e-5)
    backwards(AdamW(decoder.named_parameters()), decoder, rows)
    rounded = {name: parameter.grad.float() for name, parameter in decoder.named_parameters()}
    assert any(not torch.equal(rounded[name], grad) for name, grad in expected.items()), "the judge sees rounding"


def test_bf16_updates_equal_float32_masters() -> None:
    """Masters within 1e-6 of those of torch's AdamW on the float32 sums; the learning rate moves them by 1e-3 a step."""
    decoder = tiny_decoder("qwen2").bfloat16()
    masters = {name: nn.Parameter(p.detach().float()) for name, p in decoder.named_parameters()}
    optimizer, twin = HostAdamW(decoder.named_parameters()), torch.optim.AdamW(masters.values(), weight_decay=0.0)
    for step in range(4):
        grads = summed_gradients(decoder, rows_of(step))
        norm = torch.cat([grad.flatten() for grad in grads.values()]).norm()
        for name, grad in grads.items():
            masters[name].grad = grad * (SETTINGS.max_grad_norm / norm).clamp(max=1)
        twin.step()
        update(policy_of(decoder), optimizer, rows_of(step), LOSS, learning_rate=1e-3, config=SETTINGS)
        for name, parameter in decoder.named_parameters():
            found = join_master(parameter.detach(), optimizer.states[name]["rest"])
            torch.testing.assert_close(found, masters[name].detach(), rtol=0, atol=1e-6)


def test_gradients_leave_the_parameters_in_an_update_only() -> None:
    decoder, rows = tiny_decoder("llama"), rows_of(0)
    optimizer = HostAdamW(decoder.named_parameters())
    optimizer.begin()
    backwards(optimizer, decoder, rows)
    assert all(parameter.grad is None for parameter in decoder.parameters())
    optimizer.clip(1.0)
    optimizer.zero_grad()
    backwards(AdamW(decoder.named_parameters()), decoder, rows)
    assert all(parameter.grad is not None for parameter in decoder.parameters())
    assert not optimizer.gradients.values()


def test_a_second_begin_forgets_the_first() -> None:
    decoder, rows = tiny_decoder("llama"), rows_of(0)
    optimizer = HostAdamW(decoder.named_parameters())
    norms = []
    for _ in range(2):
        optimizer.begin()
        backwards(optimizer, decoder, rows)
        if not norms:
            norms.append(optimizer.clip(1.0))
            optimizer.begin()
            backwards(optimizer, decoder, rows)  # broken off here, hooks and all
    norms.append(optimizer.clip(1.0))
    assert norms[0] == norms[1]


def test_a_parameter_without_gradient_is_left_alone() -> None:
    used, unused = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    optimizer = HostAdamW([("used", used), ("unused", unused)], weight_decay=0.5)
    optimizer.begin()
    used.sum().backward()
    optimizer.step(0.1)
    assert torch.equal(unused, torch.ones(5))
    assert (used < 0.99).all()


def test_few_gradients_wait_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, add, waiting = tiny_decoder("llama"), HostGradients._add, []

    def slow_add(self: HostGradients, *rest: object) -> None:
        waiting.append(len(self.in_flight))
        time.sleep(0.002)
        add(self, *rest)

    monkeypatch.setattr(HostGradients, "_add", slow_add)
    optimizer = HostAdamW(decoder.named_parameters())
    trained(optimizer, decoder, 1)
    assert len(waiting) > 3 * offload.NUM_IN_FLIGHT
    assert max(waiting) <= offload.NUM_IN_FLIGHT


def test_an_error_on_the_hosts_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    decoder = tiny_decoder("llama")
    optimizer = HostAdamW(decoder.named_parameters())
    monkeypatch.setattr(HostGradients, "_add", fail)
    with pytest.raises(MemoryError, match="no room"):
        trained(optimizer, decoder, 1)


def test_the_config_chooses() -> None:
    decoder = tiny_decoder("llama")
    chosen = make_optimizer(decoder, TrainingConfig(memory_efficient_adamw=True, moment_bits=8))
    assert isinstance(chosen, HostAdamW)
    assert (chosen.moment_bits, chosen.states_on_host) == (8, True)
    assert type(make_optimizer(decoder, TrainingConfig())) is AdamW
