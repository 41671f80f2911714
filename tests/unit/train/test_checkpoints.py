"""A checkpoint is whole or not there, and holds all that a run needs to go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.runs import run_config

from grpo_zero.config import ModelConfig
from grpo_zero.errors import UserError
from grpo_zero.runs import OPTIMIZER_FILE, STATE_FILE, checkpoints, latest_checkpoint
from grpo_zero.train import checkpoints as checkpoints_module
from grpo_zero.train.checkpoints import load_optimizer, save_checkpoint, thin_out
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy, load_policy


def model_config(model_folder: Path, dtype: str) -> ModelConfig:
    return replace(run_config(model_folder, Path("unused"), "data.task=countdown").model, dtype=dtype)


def trained(model_folder: Path, dtype: str, num_steps: int = 2, moment_bits: int = 32) -> tuple[Policy, AdamW]:
    policy = load_policy(model_config(model_folder, dtype), init_seed=0)
    optimizer = AdamW(policy.decoder.named_parameters(), moment_bits=moment_bits)
    step(policy, optimizer, range(num_steps))
    return policy, optimizer


def step(policy: Policy, optimizer: AdamW, steps: range) -> None:
    for number in steps:
        generator = torch.Generator().manual_seed(number)
        for parameter in policy.decoder.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        optimizer.step(1e-4)


def assert_same(a: tuple[Policy, AdamW], b: tuple[Policy, AdamW]) -> None:
    for (name, x), (_, y) in zip(a[0].decoder.named_parameters(), b[0].decoder.named_parameters(), strict=True):
        assert torch.equal(x, y), name
    assert a[1].num_steps == b[1].num_steps
    for name, state in a[1].states.items():
        for key, tensor in state.items():
            assert torch.equal(tensor, b[1].states[name][key]), (name, key)


def reopened(checkpoint: Path, dtype: str, moment_bits: int = 32) -> tuple[Policy, AdamW, int]:
    policy = load_policy(
        ModelConfig(pretrained_model_path=str(checkpoint / "model"), dtype=dtype, device="cpu"), init_seed=9
    )
    optimizer = AdamW(policy.decoder.named_parameters(), moment_bits=moment_bits)
    return policy, optimizer, load_optimizer(optimizer, checkpoint)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("moment_bits", [32, 8])
def test_saved_and_loaded_goes_on_bit_for_bit(model_folder: Path, tmp_path: Path, dtype: str, moment_bits: int) -> None:
    """K01, in bf16 with the half of the master that the weights don't hold."""
    policy, optimizer = trained(model_folder, dtype, moment_bits=moment_bits)
    checkpoint = save_checkpoint(policy, optimizer, 7, tmp_path)
    assert checkpoint.name == "step_000007"
    loaded, loaded_optimizer, first_step = reopened(checkpoint, dtype, moment_bits)
    assert first_step == 7
    assert_same((policy, optimizer), (loaded, loaded_optimizer))
    step(policy, optimizer, range(2, 5))
    step(loaded, loaded_optimizer, range(2, 5))
    assert_same((policy, optimizer), (loaded, loaded_optimizer))


def test_the_latest_whole_checkpoint_is_found(model_folder: Path, tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "nowhere") is None
    policy, optimizer = trained(model_folder, "float32")
    for number in (2, 10, 9):
        save_checkpoint(policy, optimizer, number, tmp_path)
    assert latest_checkpoint(tmp_path).name == "step_000010"
    (tmp_path / "step_000011").mkdir()  # a stranger's folder is no checkpoint
    assert latest_checkpoint(tmp_path).name == "step_000010"


def test_the_newest_checkpoints_keep_their_optimizer(model_folder: Path, tmp_path: Path) -> None:
    policy, optimizer = trained(model_folder, "float32")
    first, second, third = (save_checkpoint(policy, optimizer, step, tmp_path) for step in (1, 2, 3))
    assert not (first / OPTIMIZER_FILE).exists()
    assert (second / OPTIMIZER_FILE).exists()
    assert (third / OPTIMIZER_FILE).exists()
    assert (first / "model" / "model.safetensors").exists()
    assert checkpoints(tmp_path) == [first, second, third]


SUCCESSES = {1: None, 2: 0.7, 3: 0.2, 4: 0.7, 5: 0.1, 6: None}


@pytest.mark.parametrize(
    ("keep_last", "keep_every", "whole", "models"),
    [
        (1, 1, [6], [1, 2, 3, 4, 5]),
        (2, 0, [5, 6], [4]),  # the best; of two equals the later
        (1, 3, [6], [3, 4]),
        (3, 5, [4, 5, 6], []),  # the best is whole anyway
        (9, 0, [1, 2, 3, 4, 5, 6], []),
    ],
)
def test_checkpoints_are_thinned_out(
    model_folder: Path, tmp_path: Path, keep_last: int, keep_every: int, whole: list[int], models: list[int]
) -> None:
    policy, optimizer = trained(model_folder, "float32")
    for step_, success in SUCCESSES.items():
        save_checkpoint(policy, optimizer, step_, tmp_path, keep_last=9, success=success)
    thin_out(checkpoints(tmp_path), keep_last, keep_every)
    left = {int(path.name[-1]): (path / OPTIMIZER_FILE).exists() for path in checkpoints(tmp_path)}
    assert left == dict.fromkeys(models, False) | dict.fromkeys(whole, True)


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_last_one_and_no_trace(model_folder: Path, tmp_path: Path, monkeypatch, error) -> None:
    """K06."""
    policy, optimizer = trained(model_folder, "float32")
    first = save_checkpoint(policy, optimizer, 1, tmp_path)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(checkpoints_module, "save_file", fail)
    for number in (1, 2):
        with pytest.raises(type(error)):
            save_checkpoint(policy, optimizer, number, tmp_path)
    assert list(tmp_path.iterdir()) == [first]
    loaded, loaded_optimizer, _ = reopened(first, "float32")
    assert_same((policy, optimizer), (loaded, loaded_optimizer))


KILLED = """
import os, signal, sys
from pathlib import Path
from grpo_zero.config import ModelConfig
from grpo_zero.train import checkpoints
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import load_policy

policy = load_policy(ModelConfig(pretrained_model_path=sys.argv[1], random_init=True, device="cpu"), init_seed=0)
optimizer = AdamW(policy.decoder.named_parameters())
checkpoints.save_checkpoint(policy, optimizer, 1, Path(sys.argv[2]))
checkpoints.save_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
checkpoints.save_checkpoint(policy, optimizer, 2, Path(sys.argv[2]))
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_killed_while_saving_the_last_good_one_is_found(model_folder: Path, tmp_path: Path) -> None:
    """K06, with a real kill between the weights and the optimizer."""
    child = subprocess.run([sys.executable, "-c", KILLED, str(model_folder), str(tmp_path)], timeout=120)
    assert child.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2, "the half-written one lies aside"
    found = latest_checkpoint(tmp_path)
    assert found.name == "step_000001"
    assert reopened(found, "float32")[2] == 1


def test_an_optimizer_of_another_model_is_refused(model_folder: Path, tmp_path: Path) -> None:
    policy, optimizer = trained(model_folder, "float32")
    checkpoint = save_checkpoint(policy, optimizer, 1, tmp_path / "a")
    bf16, bf16_optimizer = trained(model_folder, "bfloat16")
    with pytest.raises(UserError, match=r"embedding\.weight/rest is missing"):
        load_optimizer(bf16_optimizer, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "b")
    assert load_optimizer(optimizer, tmp_path / "b") == 1
    assert bf16.decoder.embedding.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(("given", "saved"), [(8, 32), (32, 8)])
def test_moments_of_other_bits_are_refused_in_a_sentence(
    model_folder: Path, tmp_path: Path, given: int, saved: int
) -> None:
    policy, optimizer = trained(model_folder, "float32", moment_bits=saved)
    checkpoint = save_checkpoint(policy, optimizer, 1, tmp_path)
    with pytest.raises(
        UserError, match=rf"moment_bits is {given}, but .* of {saved} bits: resume with training.moment_bits={saved}\."
    ):
        reopened(checkpoint, "float32", given)


def test_a_checkpoint_that_names_no_bits_has_32(model_folder: Path, tmp_path: Path) -> None:
    policy, optimizer = trained(model_folder, "float32")
    checkpoint = save_checkpoint(policy, optimizer, 1, tmp_path)
    state = json.loads((checkpoint / STATE_FILE).read_text())
    del state["moment_bits"]
    (checkpoint / STATE_FILE).write_text(json.dumps(state))
    assert reopened(checkpoint, "float32")[2] == 1
