"""Choices: what is preferred, what fits, and the sentence when nothing does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_zero.checkpoint.save import MAX_SHARD_BYTES
from grpo_zero.cli import main
from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.model.spec import ModelSpec
from grpo_zero.plan import sizes
from grpo_zero.plan.adapters import adapter_sizes
from grpo_zero.plan.job import Job, job_of
from grpo_zero.plan.phases import GIB, Choice, checkpoint_phase, sampling_phase, update_phase
from grpo_zero.plan.planner import SAFETY_SHARE, plan

SWITCHES = {"qkv_bias": True, "output_bias": False, "mlp_bias": False, "qk_norm": False, "norm_eps": 1e-6}
QWEN = {"family": "qwen2", "context": 32768, "rope_theta": 1e6, "rope_scaling": None, "head_size": 128, **SWITCHES}
QWEN_3B = ModelSpec(
    num_layers=36, width=2048, ffn_width=11008, num_heads=16, num_kv_heads=2, vocab_size=151936, tied_head=True, **QWEN
)
QWEN_7B = ModelSpec(
    num_layers=28, width=3584, ffn_width=18944, num_heads=28, num_kv_heads=4, vocab_size=152064, tied_head=False, **QWEN
)


SMALLER = {
    "gsm8k_lora_16GB": replace(QWEN_3B, num_layers=24, width=896, ffn_width=4864, num_heads=14, head_size=64),
    "gsm8k_lora_1.5B_16GB": replace(QWEN_3B, num_layers=28, width=1536, ffn_width=8960, num_heads=12),
}
"""Qwen2.5-0.5B and 1.5B, the models of these configs."""
LORA = ("lora.rank=32", "training.max_gen_len=384")


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


@pytest.mark.parametrize("name", SMALLER)
def test_the_lora_configs_stay_below_14_gb(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config, spec = load_config(name), SMALLER[name]
    assert round(spec.num_parameters / 1e9, 2) == {"gsm8k_lora_16GB": 0.49, "gsm8k_lora_1.5B_16GB": 1.54}[name]
    assert config.model.pretrained_model_path == f"Qwen2.5-{'1.5' if '1.5' in name else '0.5'}B-Instruct"
    found = plan(job_of(config, spec, "cuda"), int(config.training.memory * GIB))
    assert found.device_bytes < 14e9
    assert found.choice.micro_batch_tokens >= 4096
    assert not found.choice.memory_efficient_adamw
    file = tmp_path / "config.json"
    sizes = {"hidden_size": spec.width, "intermediate_size": spec.ffn_width, "num_hidden_layers": spec.num_layers}
    heads = {"num_attention_heads": spec.num_heads, "num_key_value_heads": 2, "vocab_size": 151936}
    more = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "model_type": "qwen2"}
    file.write_text(json.dumps(sizes | heads | more))
    assert main(["plan", "--config", name, "--model", str(file)]) == 0, "without --memory it is training.memory"
    assert found.line in capsys.readouterr().out


def test_lora_takes_less_of_everything_but_weights() -> None:
    choice = Choice("full", False, 64, 4096, 256)
    full, thin, held = (
        update_phase(job(QWEN_3B, *more), choice).device
        for more in (LORA[1:], LORA, (*LORA, "algorithm.kl_weight=0.1"))
    )
    num_trained = sum(adapter_sizes(QWEN_3B, job(QWEN_3B, *LORA).lora).values())
    assert thin["weights"] == full["weights"] == 2 * QWEN_3B.num_parameters
    assert thin["gradients"] == thin["adapters"] == thin["moments"] // 2 == 4 * num_trained
    assert full["gradients"] > 20 * thin["gradients"]
    assert "rests of bf16 weights" not in update_phase(job(QWEN_3B, *LORA), choice).host
    assert held == thin, "the reference is the frozen weights"
    begun = update_phase(job(QWEN_3B, *LORA, "algorithm.kl_weight=0.1", "lora.adapter=somewhere"), choice).device
    assert begun["KL reference"] == thin["adapters"]
    assert update_phase(job(QWEN_3B, "algorithm.kl_weight=0.1"), choice).device["KL reference"] == full["weights"]


def test_dropout_and_adapters_of_the_mlp_are_counted_in_sampling_and_update() -> None:
    plain, dropped = (job(QWEN_3B, *LORA, f"lora.dropout={share}") for share in (0.0, 0.1))
    choice = Choice("none", False, 64, 4096, 256)
    kept = [update_phase(one, choice).device["kept for backward"] for one in (plain, dropped)]
    inputs = 2 * QWEN_3B.width + QWEN_3B.num_heads * QWEN_3B.head_size + QWEN_3B.ffn_width
    assert kept[1] - kept[0] == QWEN_3B.num_layers * 4096 * inputs, "a byte of mask a place on a GPU"
    works = [sampling_phase(one, choice).device["working memory"] for one in (job(QWEN_3B, *LORA[1:]), plain)]
    assert works[1] > works[0]


def test_a_checkpoint_gathers_in_main_memory_what_leaves_the_device() -> None:
    choice = Choice("full", False, 64, 4096, 256)
    small = SMALLER["gsm8k_lora_16GB"]
    full = checkpoint_phase(job(small), choice).host["copies to write"]
    assert full == 8 * small.num_parameters, "moments, more than the model"
    offloaded = checkpoint_phase(job(small), replace(choice, memory_efficient_adamw=True)).host["copies to write"]
    assert offloaded == 2 * small.num_parameters
    assert checkpoint_phase(job(QWEN_7B, *LORA), choice).host["copies to write"] == sizes.SHARD_BYTES == MAX_SHARD_BYTES
    on_cpu = checkpoint_phase(job(small, *LORA, device="cpu"), choice).device
    assert 0.6 * on_cpu["weights"] < on_cpu["copies to write"] < on_cpu["weights"]
    assert "copies to write" not in checkpoint_phase(job(small, device="cpu"), choice).device


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
