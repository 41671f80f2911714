"""Names that become folders stay inside their folder; texts hold nothing that no path and no prompt can hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.cli import main
from grpo_zero.config import Config, load_config
from grpo_zero.errors import UserError
from grpo_zero.runs import checkpoint_folder, find_run, new_run_folder

BAD_NAMES = {
    "up": "../x",
    "up at last": "..",
    "here": ".",
    "inside": "a/b",
    "absolute": "/tmp/x",
    "backslash": "..\\x",
    "drive": "C:x",
    "empty": "",
    "space": " ",
    "leading space": " a",
    "NUL": "a\0b",
    "newline": "a\nb",
    "escape": "\x1b[2J",
    "override": "a\u202eb",
    "surrogate": "a\udc80",
    "long": "a" * 201,
    "long in bytes": "é" * 101,
}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_a_run_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"training.run_name is .* must"):
        load_config(None, [f"training.run_name={name}", f"training.log_dir={tmp_path}"])


def test_the_command_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "training.run_name=../\x1b[2Jx"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: training.run_name is ")
    assert (err.count("\n"), err.count("\x1b")) == (1, 0)


@given(name=st.text(st.characters(exclude_categories=()), max_size=250))
def test_any_accepted_name_is_a_folder_inside(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    log_dir = tmp_path_factory.mktemp("runs")
    base = Config()
    config = replace(base, training=replace(base.training, log_dir=str(log_dir), ckpt_dir=str(log_dir / "ckpt")))
    try:
        named = load_config(None, [f"training.run_name={name!r}" if name == "null" else f"training.run_name={name}"])
    except UserError:
        return
    config = replace(config, training=replace(config.training, run_name=named.training.run_name))
    folder = new_run_folder(config, "train")
    assert folder.resolve().parent == log_dir.resolve()
    assert checkpoint_folder(config, folder).parent == log_dir / "ckpt"
    assert find_run(config, "train") == folder


@pytest.mark.parametrize("key", ["model.pretrained_model_path", "training.log_dir", "data.prompt", "lora.adapter"])
@pytest.mark.parametrize("harm", ["\\0", "\\ud800"])
def test_nul_and_surrogates_are_refused(tmp_path: Path, key: str, harm: str) -> None:
    section, _, name = key.partition(".")
    path = tmp_path / "c.yaml"
    path.write_text(f'{section}: {{{name}: "a{harm}b"}}\n')
    with pytest.raises(UserError, match=f"{key} is .*, but it must be text without NUL"):
        load_config(str(path))


def test_a_path_that_the_system_refuses_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["train", "--config", "a" * 5000],
        ["plan", "--model", "a" * 5000],
        ["chat", "--model", "a/" * 3000],
        ["train", f"data.path={'a' * 5000}"],
        ["train", "--resume", "a" * 5000],
    ):
        assert main(arguments) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: "), arguments
        assert err.count("\n") == 1
        assert len(err) < 1000
