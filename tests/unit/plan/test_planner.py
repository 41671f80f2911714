"""Choices: what is preferred, what fits, and the sentence when nothing does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from grpo_zero.cli import main
from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.model.spec import ModelSpec
from grpo_zero.plan.job import Job, job_of
from grpo_zero.plan.phases import GIB, Choice, sampling_phase, update_phase
from grpo_zero.plan.planner import SAFETY_SHARE, plan

SWITCHES = {"qkv_bias": True, "output_bias": False, "mlp_bias": False, "qk_norm": False, "norm_eps": 1e-6}
QWEN = {"family": "qwen2", "context": 32768, "rope_theta": 1e6, "rope_scaling": None, "head_size": 128, **SWITCHES}
QWEN_3B = ModelSpec(
    num_layers=36, width=2048, ffn_width=11008, num_heads=16, num_kv_heads=2, vocab_size=151936, tied_head=True, **QWEN
)
QWEN_7B = ModelSpec(
    num_layers=28, width=3584, ffn_width=18944, num_heads=28, num_kv_heads=4, vocab_size=152064, tied_head=False, **QWEN
)


def job(spec: ModelSpec, *overrides: str, device: str = "cuda") -> Job:
    return job_of(load_config(None, overrides), spec, device)


@pytest.mark.parametrize(("spec", "gib"), [(QWEN_3B, 16), (QWEN_7B, 24)])
def test_known_models_fit_with_offload_only(spec: ModelSpec, gib: int) -> None:
    found = plan(job(spec), gib * GIB)
    assert found.choice.memory_efficient_adamw
    assert found.device_bytes <= (1 - SAFETY_SHARE) * gib * GIB
    assert found.host_bytes > 14 * spec.num_parameters, "moments, sums of gradients, rests"


def test_more_memory_never_means_more_recomputation_or_offload() -> None:
    cost = {"none": 0, "selective": 1, "full": 2}
    chosen = [plan(job(QWEN_3B), gib * GIB).choice for gib in (16, 24, 48, 64, 80, 141)]
    costs = [(choice.memory_efficient_adamw, cost[choice.recompute_activations]) for choice in chosen]
    assert [offload for offload, _ in costs] == sorted((offload for offload, _ in costs), reverse=True)
    assert costs[-1] == (False, 0)
    assert chosen[0].memory_efficient_adamw


def test_one_more_slot_does_not_fit() -> None:
    found = plan(job(QWEN_3B), 16 * GIB)
    assert 1 < found.choice.num_slots < 256
    more = replace(found.choice, num_slots=found.choice.num_slots + 1)
    assert sampling_phase(found.job, more).device_bytes > (1 - SAFETY_SHARE) * 16 * GIB


def test_keys_and_values_are_gone_in_the_update_and_gradients_in_sampling() -> None:
    choice = Choice("full", False, 64, 4096, 256)
    sampling, update = (phase(job(QWEN_3B), choice).device for phase in (sampling_phase, update_phase))
    assert not any("keys" in name for name in update)
    assert "gradients" not in sampling


def test_what_does_not_fit_is_told_with_the_longest_that_does() -> None:
    overlong = job(QWEN_3B, "training.max_gen_len=30000")
    with pytest.raises(
        UserError, match=r"does not fit in 16.0 GiB .*the longest training.max_gen_len that fits is"
    ) as error:
        plan(overlong, 16 * GIB)
    longest = int(str(error.value).split("that fits is ")[1].split(",")[0])
    fitting = replace(overlong, max_gen_len=longest, max_sampled_len=longest)
    plan(fitting, 16 * GIB)
    with pytest.raises(UserError, match="does not fit"):
        plan(replace(fitting, max_gen_len=longest + 1, max_sampled_len=longest + 1), 16 * GIB)


def test_8_bit_moments_are_named_where_they_would_help() -> None:
    small = replace(QWEN_3B, num_layers=4)
    short = ("training.max_gen_len=64", "training.batch_size=64", "model.dtype=float32")
    with pytest.raises(UserError, match="moment_bits=8 would fit"):
        plan(job(small, *short, device="cpu"), 10 * GIB)
    plan(job(small, *short, "training.moment_bits=8", device="cpu"), 10 * GIB)


def test_the_command_answers_without_torch_and_with_2_when_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", "embedded:countdown-tiny", "--config", "quickstart"]
    code = (
        "import sys; from grpo_zero.cli import main; assert main(sys.argv[1:]) == 0; assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--memory", "2"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "training.micro_batch_tokens=" in done.stdout
    assert main([*words, "--memory", "0.3"]) == 2
    assert "does not fit" in capsys.readouterr().err
