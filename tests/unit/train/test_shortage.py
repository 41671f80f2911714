"""Memory that runs out for good: the sentence, the checkpoint before it, and what the command line prints."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.runs import run_config, run_settings
from helpers.tiny import SPECS, random_rows, tiny_decoder

from grpo_zero.cli import main
from grpo_zero.config import Config, LoraConfig, TrainingConfig
from grpo_zero.errors import UserError
from grpo_zero.out_of_memory import OutOfMemory
from grpo_zero.plan.phases import GIB
from grpo_zero.rollout import dynamic as dynamic_module
from grpo_zero.runs import latest_checkpoint
from grpo_zero.train import update as update_module
from grpo_zero.train.budget import STEP
from grpo_zero.train.loop import GRPO
from grpo_zero.train.run import train
from grpo_zero.train.sft import warm_start
from grpo_zero.train.shortage import keys, story, where
from grpo_zero.train.update import row_logprobs

CAUSE = "DefaultCPUAllocator: can't allocate memory"


def run_out(*_: Any) -> None:
    torch.empty(2**60, dtype=torch.uint8)


def test_sizes_are_the_planners_and_the_weights_are_counted_exactly() -> None:
    decoder = tiny_decoder("llama")
    config = Config(training=TrainingConfig(num_slots=1))
    for samples, own in ((True, "completions' keys and values"), (False, "kept for backward")):
        found = where(config, decoder, samples)
        assert found["weights"] == 4 * SPECS["llama"].num_parameters
        assert found["moments"] == 8 * SPECS["llama"].num_parameters
        assert found[own] > 0
        assert ("gradients" in found) == (not samples)


def test_the_sentence_names_stage_sizes_and_keys() -> None:
    decoder = tiny_decoder("llama")
    text = story(OutOfMemory("the update", CAUSE), Config(training=TrainingConfig(micro_batch_tokens=500)), decoder)
    assert text.startswith("Memory ran out in the update, with micro-batches of 500 tokens; smaller ones cannot hold")
    kept = where(Config(training=TrainingConfig(micro_batch_tokens=500)), decoder, False)["kept for backward"]
    assert f"kept for backward {kept / GIB:.2f}" in text
    settings = "training.recompute_activations=full or training.head_chunk_tokens=32 or training.reuse_memory=false"
    assert f"--resume with {settings}; or start a new" in text
    assert text.endswith("run with training.max_gen_len below 1024 or training.moment_bits=8 or lora.rank=32.")
    text = story(OutOfMemory("sampling", CAUSE), Config(), decoder)
    assert text.startswith("Memory ran out in sampling, with one slot, and there is no less. By arithmetic")
    text = story(OutOfMemory(STEP, "some weights have been stepped and others not"), Config(), decoder)
    assert "so only the last checkpoint is good" in text


def test_no_key_is_named_that_is_set_already() -> None:
    decoder = tiny_decoder("llama")
    decoder.recompute_activations("full")
    config = Config(
        training=TrainingConfig(head_chunk_tokens=16, moment_bits=8, reuse_memory=False), lora=LoraConfig(rank=4)
    )
    assert keys(config, decoder, False) == ([], ["training.max_gen_len below 1024"])
    longer = replace(config, evaluation=replace(config.evaluation, max_gen_len=4096))
    assert keys(longer, decoder, True)[0] == ["evaluation.max_gen_len=1024"]


@pytest.mark.usefixtures("digits_task")
@pytest.mark.parametrize("stage", ["sampling", "the update"])
def test_a_run_saves_what_it_has_says_where_memory_went_and_goes_on_with_less(
    stage: str, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    original = GRPO.step

    def step(self: GRPO, number: int, *rest: Any) -> Any:
        with monkeypatch.context() as patch:
            if number == 3 and self.policy.decoder.recompute == "none":
                if stage == "sampling":
                    patch.setattr(dynamic_module, "make_cache", run_out)
                else:
                    patch.setattr(update_module, "backward", run_out)
            return original(self, number, *rest)

    monkeypatch.setattr(GRPO, "step", step)
    settings = ("training.run_name=full", "training.eval_interval=0")
    assert main(["train", *run_settings(model_folder, tmp_path, *settings)]) == 2
    folder, error = tmp_path / "full", capsys.readouterr().err
    assert re.match(
        rf"error: Memory ran out in {stage}, with .*, to Python and torch 0\.75, .* \d\.\d\d\. To need less, ", error
    )
    assert len(error.splitlines()) == 1
    assert latest_checkpoint(folder / "checkpoints").name == "step_000002"
    assert main(["train", "--resume", str(folder), "training.recompute_activations=full"]) == 0
    assert latest_checkpoint(folder / "checkpoints").name == "step_000004"


@pytest.mark.usefixtures("digits_task")
def test_a_run_whose_step_was_half_taken_saves_nothing_of_it(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates on a rollout; the second runs out of memory."""
    real, count = update_module.backward, [0]

    def second(*arguments: Any) -> Any:
        count[0] += 1
        return real(*arguments) if count[0] < 4 else run_out()

    monkeypatch.setattr(update_module, "backward", second)
    settings = ("training.updates_per_rollout=2", "training.run_name=half", "training.eval_interval=0")
    with pytest.raises(UserError, match="Memory ran out in the update"):
        train(run_config(model_folder, tmp_path, *settings))
    assert latest_checkpoint(tmp_path / "half" / "checkpoints") is None


@pytest.mark.usefixtures("digits_task")
def test_a_warm_start_goes_on_with_less_or_says_where_memory_went(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    real, most = update_module.pack, [200]

    def limited(rows: Any, device: torch.device) -> Any:
        batch = real(rows, device)
        if len(batch.tokens_T) > most[0]:
            run_out()
        return batch

    monkeypatch.setattr(update_module, "pack", limited)
    more = ("data.task=countdown", "training.max_gen_len=40", "sft.batch_size=8", "sft.max_steps=2")
    first = run_config(model_folder, tmp_path, *more, "training.run_name=a", f"sft.output={tmp_path}/model_a")
    assert warm_start(first)
    assert "note: memory ran out: training.micro_batch_tokens is now " in capsys.readouterr().out
    most[0] = 5
    with pytest.raises(UserError, match="Memory ran out in the update"):
        warm_start(run_config(model_folder, tmp_path, *more, f"sft.output={tmp_path}/b", "training.run_name=b"))


def test_a_forward_that_runs_out_leaves_the_decoder_in_training_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = tiny_decoder("llama").train()
    monkeypatch.setattr(update_module, "chunked_logprobs", run_out)
    with pytest.raises(RuntimeError, match="can't allocate"):
        row_logprobs(decoder, random_rows(0, [2]), TrainingConfig(), None)
    assert decoder.training


def test_any_other_command_says_what_to_lower(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(dynamic_module, "make_cache", run_out)
    settings = ["data.test_size=2", "evaluation.num_problems=2", "evaluation.max_gen_len=8"]
    assert main(["eval", "--model", "embedded:countdown-tiny", *settings]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: Memory ran out (out of memory in sampling: ")
    assert "training.num_slots" in error
    assert len(error.splitlines()) == 1
