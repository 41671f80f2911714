"""The runner of mutants notices both: a change that tests catch, and tests that catch nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT_ELSE = "if token in '+-*/':  ->  without else"
PLANTED = "values.append(values.pop() + right)  ->  values.append(values.pop() - right)"


@pytest.mark.parametrize(
    ("change", "tests", "code", "words"),
    [
        (PLANTED, "test_expressions", 0, '"caught": 1'),
        (PLANTED, "test_load_task", 1, f": {PLANTED}\n"),
        (WITHOUT_ELSE, "test_expressions", 0, '"caught": 1'),
    ],
)
def test_a_planted_change(change: str, tests: str, code: int, words: str) -> None:
    command = [sys.executable, "benchmarks/mutants.py", "--only", change, "--tests", f"tests/unit/tasks/{tests}.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    assert words in done.stdout
    assert '"mutants": 1' in done.stdout
