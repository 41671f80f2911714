"""Loading: defaults, files, overrides, and the round trip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpo_zero.config import (
    SECTIONS,
    Config,
    config_from_dict,
    describe_options,
    dump_yaml,
    load_config,
    packaged_configs,
    resolve_config_path,
)
from grpo_zero.errors import UserError
from grpo_zero.settings import field_names

# The file that users of the original have, comment and quotes included.
ORIGINAL = """
model:
  pretrained_model_path: "Qwen2.5-3B-Instruct"
  device: "cuda"
  dtype: "bfloat16"
data:
  path: "Countdown-Tasks-3to4"
  test_size: 128
training:
  random_seed: 1337
  max_prompt_len: 256
  max_gen_len: 1024
  batch_size: 256
  num_questions_per_batch: 32
  # Number of examples per gradient accumulation step
  micro_batch_size: 2
  max_grad_norm: 1.0
  learning_rate: 1.0e-5
  weight_decay: 0.0
  betas: [0.9, 0.999]
  ckpt_dir: "ckpt"
  log_dir: "logs"
  skip_unfinished_episodes: true
  ckpt_save_interval: 100
  eval_interval: 10
  memory_efficient_adamw: false
"""


def write(folder: Path, text: str) -> str:
    path = folder / "my.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_defaults_are_valid_and_follow_the_original() -> None:
    config = load_config()
    assert config == Config()
    assert config.training.num_answers_per_question == 8
    assert config.training.learning_rate == 1e-5


def test_original_config_file_loads_as_it_is(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, ORIGINAL))
    assert config.model.device == "cuda"
    assert config.training.betas == (0.9, 0.999)
    assert config.training.micro_batch_size == 2
    assert config.training.ckpt_dir == "ckpt"
    # Keys the original lacks keep their defaults.
    assert config.training.micro_batch_tokens == Config().training.micro_batch_tokens


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", "0.00001", "'1.0e-5'"])
def test_learning_rate_in_any_spelling(tmp_path: Path, text: str) -> None:
    config = load_config(write(tmp_path, f"training:\n  learning_rate: {text}\n"))
    assert config.training.learning_rate == 1e-5
    assert load_config(None, [f"training.learning_rate={text}"]).training.learning_rate == 1e-5


@pytest.mark.parametrize("text", ["", "# nothing\n", "model:\ntraining:\n"])
def test_empty_files_and_sections_mean_the_defaults(tmp_path: Path, text: str) -> None:
    assert load_config(write(tmp_path, text)) == Config()


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    config = load_config(
        write(tmp_path, ORIGINAL),
        [
            "training.batch_size=64",
            "training.betas=[0.9, 0.95]",
            "training.recompute_activations=false",
            "training.micro_batch_size=null",
            "data.numbers_per_problem=[3, 3]",
        ],
    )
    assert config.training.batch_size == 64
    assert config.training.betas == (0.9, 0.95)
    assert config.training.recompute_activations is False
    assert config.training.micro_batch_size is None
    assert config.data.numbers_per_problem == (3, 3)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.prompt=Use {nums}: reach {target}=?", "Use {nums}: reach {target}=?"),
        ("data.prompt={nums} to {target}", "{nums} to {target}"),
        ("data.prompt=null", None),
        ('data.prompt="null"', "null"),
        ("data.prompt=7", "7"),
        ("data.prompt=", ""),
    ],
)
def test_text_overrides_need_no_yaml_quoting(override: str, expected: str | None) -> None:
    assert load_config(None, [override]).data.prompt == expected


def test_dump_loads_as_an_equal_config(tmp_path: Path) -> None:
    config = load_config(
        None,
        [
            "training.learning_rate=3e-7",
            "training.max_minutes=2.5",
            "training.recompute_activations=true",
            "training.run_name=2024-01-01",
            "data.prompt=Say: “{nums}” # {target}",
            "sft.tries=[2, 2]",
        ],
    )
    assert load_config(write(tmp_path, dump_yaml(config))) == config
    assert config_from_dict(config.to_dict()) == config


def test_help_names_every_key_with_a_sentence() -> None:
    text = describe_options()
    for section, section_type in SECTIONS.items():
        for key in field_names(section_type):
            [line] = [ln for ln in text.splitlines() if ln.startswith(f"{section}.{key} (")]
            assert line.endswith(".")
            sentence = line.split("): ", 1)[1]
            assert sentence[0].isupper()
    assert "training.micro_batch_size (int|null, null): " in text
    assert "model.dtype (auto|float32|bfloat16, auto): " in text


def test_a_name_finds_the_packaged_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("grpo_zero.config.load.resources.files", lambda _: tmp_path / "package")
    folder = tmp_path / "package" / "configs"
    folder.mkdir(parents=True)
    (folder / "quickstart.yaml").write_text("training: {max_steps: 3}\n")
    assert list(packaged_configs()) == ["quickstart"]
    assert load_config("quickstart").training.max_steps == 3
    assert resolve_config_path("quickstart.yaml") == folder / "quickstart.yaml"
    # A file of the user's own comes first.
    (tmp_path / "quickstart.yaml").write_text("training: {max_steps: 4}\n")
    assert load_config("quickstart.yaml").training.max_steps == 4
    with pytest.raises(UserError, match="Did you mean 'quickstart'"):
        load_config("quikstart")


def test_config_imports_no_torch() -> None:
    code = "import sys, grpo_zero.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
