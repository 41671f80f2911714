"""The same judges on a GPU: skipped where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.tiny import SPECS, GradientCatcher, policy_of, random_rows, tiny_decoder

from grpo_zero.config import TrainingConfig
from grpo_zero.model.attention import DenseMask, GroupLayout, PackedGroups, dense_mask, packed_positions
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.recompute import recomputed
from grpo_zero.presets import PRESETS, AlgorithmConfig, with_preset
from grpo_zero.rollout import static as static_module
from grpo_zero.rollout.engine import STRATEGIES, Engine
from grpo_zero.rollout.graphs import StepGraphs
from grpo_zero.rollout.grid import scores
from grpo_zero.rollout.naive import naive_generate
from grpo_zero.rollout.request import Request
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train import optimizer as optimizer_module
from grpo_zero.train.moments import dither, quantise_signed, quantise_unsigned
from grpo_zero.train.offload import NUM_IN_FLIGHT
from grpo_zero.train.optimizer import AdamW, HostAdamW
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update
from grpo_zero.types import Completion

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
GROUPS = [GroupLayout(5, (3, 0, 7)), GroupLayout(9, (1,)), GroupLayout(4, (6, 6, 2, 8))]
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10], [11], [5, 6]]


@pytest.mark.parametrize("family", SPECS)
def test_packed_equals_dense(family: str) -> None:
    decoder = tiny_decoder(family).cuda()
    tokens_T = torch.randint(0, 20, (sum(group.num_tokens for group in GROUPS),), device="cuda")
    positions_T = torch.from_numpy(packed_positions(GROUPS)).cuda()
    packed = decoder(tokens_T, positions_T, PackedGroups(GROUPS, tokens_T.device))
    dense = decoder(tokens_T, positions_T, DenseMask(torch.from_numpy(dense_mask(GROUPS)).cuda()))
    torch.testing.assert_close(packed, dense, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", SPECS)
@pytest.mark.parametrize("num_slots", [1, 3, None])
@pytest.mark.parametrize("decode", ["dynamic", "static"])
def test_engine_equals_naive(family: str, num_slots: int | None, decode: str) -> None:
    decoder, params = tiny_decoder(family).cuda(), SamplingParams(20, temperature=0.0)
    stop_ids = frozenset({7})
    engine = Engine(decoder, stop_ids, None, num_slots, decode=decode).generate(PROMPTS, 3, params)
    naive = naive_generate(decoder, PROMPTS, 3, params, stop_ids=stop_ids)
    assert [[c.token_ids for c in group] for group in engine] == [[c.token_ids for c in group] for group in naive]


@pytest.mark.parametrize("decode", ["dynamic", "static"])
def test_a_real_shortage_leaves_sampling_with_fewer_slots(decode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, params = tiny_decoder("qwen2").cuda(), SamplingParams(20, temperature=0.0)
    expected = Engine(decoder, frozenset(), None, 3, decode=decode).generate(PROMPTS, 3, params)
    strategy, seen = STRATEGIES[decode], []

    def limited(decoder: Decoder, request: Request) -> list[list[Completion]]:
        found = strategy(decoder, request)
        seen.append(request.num_slots)
        if request.num_slots > 3:
            torch.empty(2**50, dtype=torch.uint8, device="cuda")
        return found

    monkeypatch.setitem(STRATEGIES, decode, limited)
    engine = Engine(decoder, frozenset(), None, 12, decode=decode)
    found = engine.generate(PROMPTS, 3, params)
    assert (seen, engine.num_slots) == ([12, 6, 3], 3)
    assert [[c.token_ids for c in group] for group in found] == [[c.token_ids for c in group] for group in expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("params", [SamplingParams(40), SamplingParams(40, temperature=1.2, top_k=20, top_p=0.9)])
def test_replayed_graphs_say_what_the_steps_say(
    dtype: torch.dtype, params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kernels on the same buffers, so the same tokens and log-probs; several shapes, and cells used twice."""
    monkeypatch.setattr(static_module, "OWN_STEP", 16)
    decoder = tiny_decoder("qwen2").to(dtype).cuda()
    ways, captured = [], []
    capture = StepGraphs._captured
    monkeypatch.setattr(StepGraphs, "_captured", lambda graphs, shape: captured.append(shape) or capture(graphs, shape))
    for num_slots in (None, 8):
        engine = Engine(decoder, frozenset({7, 8, 9}), None, num_slots, decode="static")
        ways.append(engine.generate(PROMPTS, 8, params))
        assert len(set(captured)) > 1
        with monkeypatch.context() as patch:
            patch.setattr(StepGraphs, "run", lambda graphs, shape: graphs.step(shape))
            assert engine.generate(PROMPTS, 8, params) == ways[-1]


def test_graphs_and_grid_leave_no_memory_behind() -> None:
    """M04: what remains is cuBLAS's workspace of each stream."""
    decoder = tiny_decoder("qwen2").cuda()
    engine, params = Engine(decoder, frozenset(), None, decode="static"), SamplingParams(300)
    engine.generate(PROMPTS, 4, params)  # libraries take their workspaces
    before = torch.cuda.memory_allocated()
    engine.generate(PROMPTS, 64, params)
    assert torch.cuda.memory_allocated() <= before + 2**20


def test_static_scores_of_bf16_are_float32() -> None:
    torch.manual_seed(0)
    q, k = 8 * torch.randn(2, 3, 5, 64).bfloat16(), torch.randn(2, 3, 200, 64).bfloat16()
    found = scores(q.cuda(), k.cuda()[:, :, :150])
    torch.testing.assert_close(found.cpu(), scores(q, k[:, :, :150]), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("is_on_policy", [True, False])
@pytest.mark.parametrize("mode", ["none", "selective", "full"])
def test_updates_equal_the_cpus(preset: str, is_on_policy: bool, mode: str) -> None:
    algorithm = AlgorithmConfig(**with_preset({"preset": preset, "kl_weight": 0.2}))
    rows = [
        replace(row, reference_logprobs=[-2.0] * len(row.completion_ids))
        for row in weigh(random_rows(5, [3, 2, 1, 4]), algorithm.average, 9)
    ]
    found = []
    for device in ("cpu", "cuda"):
        decoder = tiny_decoder("qwen2").to(device)
        decoder.recompute_activations(mode if device == "cuda" else "none")
        catcher = GradientCatcher(decoder)
        loss = GRPOLoss(algorithm=algorithm, is_on_policy=is_on_policy)
        config = TrainingConfig(max_grad_norm=1e9, micro_batch_size=3)
        facts = update(policy_of(decoder), catcher, rows, loss, learning_rate=1.0, config=config)
        found.append((facts, torch.cat([g.flatten().cpu() for g in catcher.gradients.values()])))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-3, abs=1e-5)
    scale = found[0][1].abs().max().item()
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-3, atol=1e-4 * scale)


def test_dropout_computed_again_draws_the_same_numbers() -> None:
    gradients = []
    for is_recomputed in (False, True):
        torch.manual_seed(0)
        x = torch.ones(64, 64, device="cuda", requires_grad=True)
        out = recomputed(dropped, x, True) if is_recomputed else dropped(x)
        torch.rand(3, device="cuda")  # others draw before backward
        out.square().sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


def dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x.exp(), 0.5).exp()


def test_states_on_the_host_change_nothing_in_bf16() -> None:
    torch.manual_seed(0)
    start, grads = torch.randn(33, 7).bfloat16(), torch.randn(5, 33, 7).bfloat16()
    ends = []
    for states_on_host in (False, True):
        weight = torch.nn.Parameter(start.clone().cuda())
        optimizer = AdamW([("weight", weight)], states_on_host=states_on_host)
        for grad in grads:
            weight.grad = grad.cuda()
            optimizer.step(1e-3)
        ends.append(weight.detach().float().cpu())
    torch.testing.assert_close(ends[0], ends[1], atol=1e-6, rtol=1e-2)


@pytest.mark.parametrize("signed", [True, False])
def test_8_bit_codes_are_the_cpus(signed: bool) -> None:
    """Codes differ by one where a root is rounded otherwise; that is rare. Scales are equal."""
    torch.manual_seed(0)
    values = torch.randn(10_000) * torch.exp(2 * torch.randn(10_000))
    quantise = quantise_signed if signed else quantise_unsigned
    values = values if signed else values.square()
    found = []
    for device in ("cpu", "cuda"):
        codes, scale_N = quantise(values.to(device), dither(slice(0, 40), 0.3, torch.device(device)))
        found.append((codes.cpu().int(), scale_N.cpu()))
    assert torch.equal(found[0][1], found[1][1])
    apart = (found[0][0] - found[1][0]).abs()
    assert apart.max() <= 1
    assert apart.float().mean() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_8_bit_moments_on_the_device_step_like_those_on_the_host(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    start, grads = 0.02 * torch.randn(333, 70).to(dtype), torch.randn(20, 333, 70).to(dtype)
    ways = []
    for states_on_host in (False, True):
        weight = torch.nn.Parameter(start.clone().cuda())
        optimizer = AdamW([("weight", weight)], states_on_host=states_on_host, moment_bits=8)
        assert optimizer.states["weight"]["moment1"].is_cuda is not states_on_host
        for grad in grads:
            weight.grad = grad.cuda()
            optimizer.step(1e-3)
        ways.append(weight.detach().float().cpu() - start.float())
    assert (ways[0] - ways[1]).norm() < 0.02 * ways[1].norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("moment_bits", [32, 8])
def test_offloaded_updates_are_the_cpus_bit_for_bit(
    dtype: torch.dtype, moment_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host does all the arithmetic, and here the gradients are given; many small chunks go round the ring many times, so a
    copy that does not wait for its turn would show."""
    monkeypatch.setattr(optimizer_module, "HOST_CHUNK", 2**14)
    torch.manual_seed(0)
    starts = [torch.randn(700, 600).to(dtype) for _ in range(6)]
    grads = torch.randn(3, 2, 6, 700, 600).to(dtype)
    ends = []
    for device in ("cpu", "cuda"):
        weights = {f"w{i}": torch.nn.Parameter(start.clone().to(device)) for i, start in enumerate(starts)}
        optimizer = HostAdamW(weights.items(), moment_bits=moment_bits)
        norms = []
        for micro_batches in grads.to(device):
            optimizer.begin()
            for grads_of_weights in micro_batches:
                for weight, grad in zip(weights.values(), grads_of_weights, strict=True):
                    torch._foreach_mul_([torch.ones(2**22, device=device)] * 4, 2.0)  # keeps the device busy
                    (weight * grad).sum().backward()
            norms.append(optimizer.clip(1.0))
            optimizer.step(1e-2)
            optimizer.zero_grad()
        ends.append((norms, [weight.detach().cpu() for weight in weights.values()], optimizer.tensors()))
    assert ends[0][0] == ends[1][0]
    for cpu, cuda in zip(ends[0][1], ends[1][1], strict=True):
        assert torch.equal(cpu, cuda)
    for name, tensor in ends[0][2].items():
        assert torch.equal(tensor, ends[1][2][name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_offloaded_grpo_updates_equal_those_on_the_device(dtype: torch.dtype) -> None:
    ways = []
    for kind in (AdamW, HostAdamW):
        decoder = tiny_decoder("qwen2").to(dtype).cuda()
        start = torch.cat([p.detach().float().flatten() for p in decoder.parameters()])
        optimizer = kind(decoder.named_parameters())
        loss = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
        for step in range(5):
            rows = weigh(random_rows(step, [3, 2, 4]), "token", 9)
            update(policy_of(decoder), optimizer, rows, loss, 1e-2, TrainingConfig(micro_batch_size=3))
        ways.append(torch.cat([p.detach().float().flatten() for p in decoder.parameters()]) - start)
    tolerance = 0.01 if dtype == torch.float32 else 0.2  # in bf16 the plain way rounds sums of gradients
    assert (ways[0] - ways[1]).norm() < tolerance * ways[0].norm()


def test_offloaded_gradients_do_not_stay_on_the_device() -> None:
    """24 matrices of 8 MiB: their gradients would be 192 MiB; only those in flight and at work may be there."""
    mib, width = 2**20, 2048
    layers = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(24)]).bfloat16().cuda()
    optimizer = HostAdamW(layers.named_parameters())
    x = torch.randn(8, width, device="cuda", dtype=torch.bfloat16)
    layers(x).sum().backward()  # libraries take their workspaces
    optimizer.zero_grad()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    optimizer.begin()
    layers(x).sum().backward()
    optimizer.clip(1.0)
    assert torch.cuda.memory_allocated() - before < 2 * 8 * mib  # the host thread may just be letting go of the last
    optimizer.step(1e-3)
    assert torch.cuda.max_memory_allocated() - before < (NUM_IN_FLIGHT + 4) * 8 * mib
