"""A real ``grpo-zero train`` in a process of its own, watched from outside: its curve, its summary, its memory and open files."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GIB = 2**30
INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class Watched:
    """What a run left, and what was seen of it."""

    summary: dict[str, Any]
    steps: list[dict[str, Any]]
    """Rows of metrics.jsonl of training steps."""
    curve: list[dict[str, Any]]
    """Step, sampled and greedy success of each evaluation."""
    peak_gib_by_step: list[float]
    """Highest resident memory seen while each step was the next to be recorded; NaN-free, 0 where a step was too short to see."""
    open_files_by_step: list[int]


def watched_train(*settings: str) -> Watched:
    """Run to the end; ``settings`` follow the word train. The run folder is temporary."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "grpo_zero.cli", "train", *settings]
        command += [f"training.log_dir={folder}", "training.run_name=run"]
        process = subprocess.Popen(command, cwd=ROOT)
        memory, files = _watch(process, run / "metrics.jsonl")
        if process.returncode != 0:
            raise SystemExit(f"the run ended with code {process.returncode}")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    steps = [row for row in rows if row["kind"] == "train"]
    names = [name for name in ("success", "greedy_success") if f"eval/{name}" in rows[0]]
    curve = [{"step": row["step"]} | {n: row[f"eval/{n}"] for n in names} for row in rows if row["kind"] == "eval"]
    counts = range(1, len(steps) + 1)
    return Watched(summary, steps, curve, [memory.get(n, 0.0) for n in counts], [files.get(n, 0) for n in counts])


def _watch(process: subprocess.Popen[bytes], metrics: Path) -> tuple[dict[int, float], dict[int, int]]:
    memory: dict[int, float] = {}
    files: dict[int, int] = {}
    while process.poll() is None:
        step = 1 + (metrics.read_text(encoding="utf-8").count('"kind": "train"') if metrics.exists() else 0)
        try:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            descriptors = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        except OSError:  # it has just ended
            break
        memory[step] = max(memory.get(step, 0.0), pages * 4096 / GIB)
        files[step] = max(files.get(step, 0), descriptors)
        time.sleep(INTERVAL_S)
    process.wait()
    return memory, files
