"""``train.py``: the default config, unless the command brings its own."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from grpo_zero import cli

SCRIPT = Path(__file__).parents[2] / "train.py"
DEFAULT = ["--config", "config.yaml"]


@pytest.mark.parametrize(
    ("given", "before"),
    [
        ([], DEFAULT),
        (["training.max_steps=3"], DEFAULT),
        (["--resume", "auto"], DEFAULT),
        (["--resume=auto", "training.run_name=a"], DEFAULT),
        (["--resume", "runs/a"], []),
        (["--resume=runs/a"], []),
        (["--config", "config_24GB.yaml"], []),
        (["--config=config_24GB.yaml", "--resume", "auto"], []),
        (["--help"], []),
    ],
)
def test_the_default_config_is_put_in_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch, given: list[str], before: list[str]
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(cli, "main", lambda arguments: seen.append(arguments) or 7)
    monkeypatch.setattr(sys, "argv", ["train.py", *given])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert end.value.code == 7
    assert seen == [["train", *before, *given]]
