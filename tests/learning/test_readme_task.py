"""README's section about a task of one's own, run as it stands; only shorter."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from grpo_zero.cli import main
from grpo_zero.observe.files import read_rows

ROOT = Path(__file__).parents[2]
SHORTER = {
    "check-task": [],
    "train": [
        "training.max_steps=2",
        "training.num_questions_per_batch=4",
        "training.batch_size=16",
        "training.max_gen_len=48",
        "evaluation.num_problems=8",
        "evaluation.samples_per_problem=1",
    ],
}


def test_the_section_about_your_own_task_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Your own task")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(ROOT)
    commands = [shlex.split(line.removeprefix("uv run grpo-zero ")) for line in block.splitlines()]
    assert [words[0] for words in commands] == ["check-task", "train"]
    for words in commands:
        more = [*SHORTER[words[0]]]
        if words[0] == "train":
            more += [f"training.log_dir={tmp_path}", "training.run_name=mine"]
        assert main([*words, *more]) == 0, words
    out = capsys.readouterr().out
    assert "nothing wrong was found" in out
    rows = read_rows(tmp_path / "mine" / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert summary["steps"] == 2
