"""Every mistake is refused in one sentence that names what was typed and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grpo_zero.config import Config, load_config
from grpo_zero.errors import UserError
from grpo_zero.settings import read_yaml


def message_of(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(None, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        # Unknown names.
        ("training.lerning_rate=1", ["training.lerning_rate", "Did you mean 'learning_rate'"]),
        ("model.batch_size=1", ["Did you mean training.batch_size or sft.batch_size?"]),
        ("model.weight_decay=1", ["Did you mean training.weight_decay?"]),
        ("micro_batch_tokens=1", ["write training.micro_batch_tokens."]),
        ("learning_rate=1", ["write training.learning_rate or sft.learning_rate."]),
        ("traning.max_steps=1", ["Unknown section traning", "Did you mean 'training'"]),
        ("lerning_rate=1", ["Did you mean 'learning_rate'"]),
        ("training=1", ["'training=1' is no setting", "section.key=value"]),
        ("training.max_steps", ["section.key=value"]),
        ("training.max_steps=[1", ["'training.max_steps=[1'", "YAML"]),
        # Wrong types.
        ("training.batch_size=big", ["training.batch_size is big", "a whole number, at least 1"]),
        ("training.batch_size=true", ["is true", "a whole number"]),
        ("training.batch_size=2.5", ["is 2.5", "a whole number"]),
        ("training.batch_size=null", ["is null", "a whole number, at least 1."]),
        ("training.learning_rate=fast", ["is fast", "a number, at least 0."]),
        ("training.learning_rate=.nan", ["is nan", "a number"]),
        ("training.max_grad_norm=.inf", ["is inf", "a number"]),
        ("training.micro_batch_size=0", ["is 0", "a whole number, at least 1, or null"]),
        ("training.skip_unfinished_episodes=1", ["is 1", "true or false"]),
        ("training.recompute_activations=maybe", ["is maybe", "one of auto, none, selective, full, true, false"]),
        ("training.recompute_activations=1", ["is 1", "one of auto, none, selective, full, true, false"]),
        ("training.betas=0.9", ["is 0.9", "a list of 2 numbers, each at least 0 and below 1"]),
        ("training.betas=[0.9]", ["is [0.9]", "a list of 2 numbers"]),
        ("training.betas=[0.9, 1.0]", ["is [0.9, 1.0]", "below 1"]),
        ("data.numbers_per_problem=[3]", ["is [3]", "a list of 2 whole numbers"]),
        ("data.numbers_per_problem=[3, 7]", ["is [3, 7]", "each at least 2 and at most 6"]),
        ("model.dtype=float16", ["is float16", "one of auto, float32, bfloat16"]),
        # Values out of range.
        ("training.temperature=0", ["is 0", "a number, above 0"]),
        ("evaluation.top_p=0", ["above 0 and at most 1"]),
        ("evaluation.top_p=1.5", ["above 0 and at most 1"]),
        ("training.max_gen_len=0", ["training.max_gen_len is 0", "at least 1"]),
        ("training.eval_interval=-1", ["is -1", "at least 0"]),
        ("training.ckpt_save_interval=-1", ["is -1", "at least 0"]),
        ("model.device=gpu", ["model.device is gpu", "cuda:0"]),
        # Contradictions.
        ("data.number_range=[9, 1]", ["data.number_range is [9, 1]", "write [1, 9]"]),
        ("data.target_range=[9, 1]", ["data.target_range is [9, 1]"]),
        ("sft.tries=[4, 1]", ["sft.tries is [4, 1]"]),
        ("data.test_size=0", ["nothing to evaluate", "training.eval_interval to 0"]),
        ("evaluation.num_problems=129", ["is 129", "only 128"]),
    ],
)
def test_mistake_is_named(override: str, parts: list[str]) -> None:
    message = message_of(override)
    for part in parts:
        assert part in message
    assert message.rstrip().endswith((".", "?"))


def test_batch_that_does_not_divide_states_the_arithmetic() -> None:
    """R04."""
    message = message_of("training.num_questions_per_batch=48")
    assert "256 / 48 = 5.33" in message
    assert "240 (5 answers each) or 288 (6 answers each)" in message
    assert "num_questions_per_batch of 32 or 64" in message


@pytest.mark.parametrize("batch", range(1, 40))
@pytest.mark.parametrize("questions", [1, 7, 8, 32])
def test_advice_about_groups_is_itself_accepted(batch: int, questions: int) -> None:
    sizes = [f"training.batch_size={batch}", f"training.num_questions_per_batch={questions}"]
    if batch % questions == 0 and batch // questions >= 2:
        load_config(None, sizes)
        return
    message = message_of(*sizes)
    for size in re.findall(r"(\d+) \(\d+ answers", message):
        load_config(None, [f"training.batch_size={size}", sizes[1]])
    advised = re.search(r"num_questions_per_batch of (\d+)(?: or (\d+))?", message)
    for count in advised.groups() if advised else ():
        if count:
            load_config(None, [sizes[0], f"training.num_questions_per_batch={count}"])


def test_group_of_one_explains_itself() -> None:
    message = message_of("training.batch_size=32")
    assert "one answer per question" in message
    assert "advantage zero" in message
    assert "batch_size of 64" in message


def test_step_larger_than_the_generated_data() -> None:
    message = message_of("data.path=generate", "data.train_size=16")
    assert "data.train_size is 16" in message


def test_random_weights_need_a_config_json() -> None:
    message = message_of("model.random_init=true", "model.pretrained_model_path=a/b.gguf")
    assert "a/b.gguf" in message


def test_never_evaluating_needs_no_held_out_problems() -> None:
    config = load_config(None, ["data.test_size=0", "training.eval_interval=0"])
    assert config != Config()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("training:\n  batch_size: 8\n  batch_size: 16\n", ["batch_size twice", "lines 2 and 3"]),
        ("training: {}\ntraining: {}\n", ["training twice", "lines 1 and 2"]),
        ("training:\n  a: [1\nmodel: {}\n", ["line 3", "not valid YAML"]),
        ("training:\n\tbatch_size: 8\n", ["line 2", "not valid YAML"]),
        ("training:\n  run_name: 2024-13-45\n", ["not valid YAML", "month"]),
        ("training:\n  run_name: 2024-01-05\n", ["2024-01-05", "text", "in quotes"]),
        ("- 1\n", ["holds [1]", "sections: model, data, training"]),
        ("training: 8\n", ["training is 8", "section"]),
        ("training: {lr: 1}\n", ["Unknown key training.lr", "my.yaml"]),
        ("batch_size: 8\n", ["batch_size needs its section", "training.batch_size", "my.yaml"]),
        ("trainning: {}\n", ["Unknown section trainning", "Did you mean 'training'"]),
    ],
)
def test_mistake_in_the_file_is_named(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(str(path))
    for part in parts:
        assert part in str(caught.value)


def test_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(b"model: \xff\xfe\n")
    with pytest.raises(UserError, match="not valid YAML"):
        load_config(str(path))


def test_missing_file_names_the_folder_that_was_searched() -> None:
    with pytest.raises(UserError, match=re.escape(str(Path.cwd()))):
        load_config("no_such_file.yaml")


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["lora.rank=2", "lora.targets=[lm_head]"], ["lora.targets has lm_head", "stay frozen"]),
        (["lora.rank=2", "lora.targets=[q_prj]"], ["lora.targets has q_prj", "Did you mean 'q_proj'?"]),
        (["lora.targets=[]"], ["lora.targets is [], but", "a list of texts"]),
        (["lora.adapter=somewhere"], ["lora.adapter is given, but lora.rank is 0"]),
        (["training.memory=much"], ["training.memory is much", "a number of GiB above 0"]),
        (["training.memory=-1"], ["training.memory is -1", "a number of GiB above 0"]),
        (["training.batch_size=[[[[[1]]]]]"], ["training.batch_size is [[[[...]]]], but"]),
    ],
)
def test_more_mistakes_are_named(overrides: list[str], parts: list[str]) -> None:
    message = message_of(*overrides)
    for part in parts:
        assert part in message


def test_a_config_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\): give another config file"):
        read_yaml(tmp_path)
