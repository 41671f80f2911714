"""A real run, killed with SIGKILL and resumed; ``benchmarks/kills.py`` does the same fifty times."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.skipif(os.name != "posix", reason="kills processes")
def test_a_killed_run_ends_as_one_never_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # a tiny model: a second thread only waits
    import kills

    settings = tuple(setting for setting in kills.SETTINGS if "max_steps" not in setting)
    result = kills.trial(tmp_path, 3, seed=0, settings=(*settings, "training.max_steps=150", "training.report=false"))
    assert result["kills"] == 3
    assert result["while_saving"] == 1
    assert result["checkpoints_lost"] == result["wrong_resumes"] == 0
    assert result["same_curve"]
    assert result["same_weights"]
