"""Static shapes against naive generation, token for token: the code that becomes CUDA graphs, run step by step on a CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from helpers.sampling import MASK_V, MODES, PROMPTS, STOP_IDS, assert_same
from helpers.tiny import tiny_decoder

from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout import engine as engine_module
from grpo_zero.rollout import static as static_module
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.graphs import StepGraphs
from grpo_zero.rollout.grid import Grid, Shape, scores
from grpo_zero.rollout.naive import naive_generate
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.rollout.static import Seats, grid_size

SLOTS = [1, 2, 3, 5, 7, None]
"""One cell, part of a group, a group and no more, cells left over, two prompts of four, all."""


def static_engine(decoder: Decoder, stop_ids: frozenset[int] = STOP_IDS, num_slots: int | None = None) -> Engine:
    return Engine(decoder, stop_ids, None, num_slots, decode="static")


@pytest.mark.parametrize("params", MODES.values(), ids=MODES)
@pytest.mark.parametrize("poll_every", [1, 3, 8])
def test_equals_naive_generation(
    decoder: Decoder, params: SamplingParams, poll_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(static_module.POLL_EVERY, "cpu", poll_every)
    monkeypatch.setattr(static_module, "OWN_STEP", 4)
    expected = naive_generate(decoder, PROMPTS, 3, params, stop_ids=STOP_IDS, has_token_V=MASK_V, seed_key=(7, "x", 2))
    for num_slots in SLOTS:
        engine = Engine(decoder, STOP_IDS, MASK_V, num_slots, decode="static")
        assert_same(engine.generate(PROMPTS, 3, params, seed_key=(7, "x", 2)), expected)


@pytest.mark.parametrize("poll_every", [1, 8])
def test_equals_the_dynamic_engine_where_groups_end_one_after_the_other(
    decoder: Decoder, poll_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large groups whose grid shrinks several times, in rows and in columns."""
    monkeypatch.setitem(static_module.POLL_EVERY, "cpu", poll_every)
    shapes: list[Shape] = []
    step = Grid.step
    monkeypatch.setattr(Grid, "step", lambda grid, shape: (shapes.append(shape), step(grid, shape)))
    params = SamplingParams(40)
    found = static_engine(decoder).generate(PROMPTS, 9, params)
    assert_same(found, Engine(decoder, STOP_IDS, None, decode="dynamic").generate(PROMPTS, 9, params))
    cells = [shape.num_cells for shape in shapes]
    assert cells[0] == 36
    assert all(after == before or 2 * after <= before for before, after in itertools.pairwise(cells))
    assert cells[-1] <= 18


def test_a_step_asks_the_host_nothing(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """No value of the device decides what a step does, so it can be captured."""

    def refuse(self: torch.Tensor, *args: object) -> None:
        raise AssertionError("a step reads a value from the device")

    step = Grid.step

    def guarded(grid: Grid, shape: Shape) -> None:
        with monkeypatch.context() as patch:
            for reading in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "nonzero"):
                patch.setattr(torch.Tensor, reading, refuse)
            patch.setattr(torch, "from_numpy", refuse)
            patch.setattr(torch, "tensor", refuse)
            step(grid, shape)

    monkeypatch.setattr(Grid, "step", guarded)
    for params in MODES.values():
        assert len(static_engine(decoder).generate(PROMPTS, 2, params)) == 4


@pytest.mark.parametrize("poll_every", [1, 8])
def test_a_sample_does_not_depend_on_its_siblings_or_the_other_prompts(
    decoder: Decoder, poll_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(static_module.POLL_EVERY, "cpu", poll_every)
    engine = static_engine(decoder, num_slots=4)
    full = engine.generate(PROMPTS, 5, MODES["sampled"])
    assert_same(engine.generate(PROMPTS[:1], 2, MODES["sampled"]), [full[0][:2]])


def test_ended_rows_change_nothing_of_what_they_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at long after their end, rows still hold what they said up to it, also those that are full."""
    decoder = tiny_decoder("qwen2")
    params = SamplingParams(6)
    expected = Engine(decoder, STOP_IDS, None, decode="dynamic").generate(PROMPTS, 3, params)
    monkeypatch.setattr(Seats, "most_steps_left", 50)
    monkeypatch.setitem(static_module.POLL_EVERY, "cpu", 50)
    assert_same(static_engine(decoder).generate(PROMPTS, 3, params), expected)


@pytest.mark.parametrize("num_prompts", [1, 2, 7])
@pytest.mark.parametrize("num_samples", [1, 4, 6])
def test_a_grid_fits_its_slots_and_wastes_few(num_prompts: int, num_samples: int) -> None:
    for num_slots in range(1, 50):
        rows, columns = grid_size(num_prompts, num_samples, num_slots)
        assert columns <= num_samples
        assert rows * columns <= num_slots
        if num_slots >= num_prompts * num_samples:
            assert (rows, columns) == (num_prompts, num_samples)
        else:
            assert 2 * rows * columns > num_slots


def test_static_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, called = tiny_decoder("qwen2"), []
    for name in engine_module.STRATEGIES:
        monkeypatch.setitem(engine_module.STRATEGIES, name, lambda *_, name=name: called.append(name))
    Engine(decoder, STOP_IDS, None).generate(PROMPTS, 1, SamplingParams(1))
    for decode in ("dynamic", "static"):
        Engine(decoder, STOP_IDS, None, decode=decode).generate(PROMPTS, 1, SamplingParams(1))
    assert called == ["dynamic", "dynamic", "static"]


def test_scores_of_bf16_are_not_rounded_to_bf16() -> None:
    torch.manual_seed(0)
    q, k = (torch.randn(2, 3, rows, 16).bfloat16() for rows in (4, 5))
    expected = np.einsum("bkqd,bktd->bkqt", q.double().numpy(), k.double().numpy())
    found = scores(q, k)
    assert found.dtype == torch.float32
    assert found.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_shape_is_warmed_up_once_captured_once_and_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is one step: none is lost, none is done twice. (That graphs compute the same is tests/gpu's.)"""
    log: list[str] = []

    class Recorded:
        def __init__(self, shape: Shape) -> None:
            log.append(f"capture {shape.num_columns}")
            self.shape = shape

        def replay(self) -> None:
            log.append(f"step {self.shape.num_columns}")

    graphs = StepGraphs(lambda shape: log.append(f"step {shape.num_columns}"), torch.device("cpu"))
    monkeypatch.setattr(graphs, "pool", object())
    monkeypatch.setattr(graphs, "_run_aside", graphs.step)
    monkeypatch.setattr(graphs, "_captured", Recorded)
    for columns in (4, 4, 4, 2, 4, 2):
        graphs.run(Shape(1, columns, 8))
    assert log == ["step 4", "capture 4", "step 4", "step 4", "step 2", "step 4", "capture 2", "step 2"]
