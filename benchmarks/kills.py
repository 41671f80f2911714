"""A run killed at random moments, resumed each time, and held against one never killed.

    python benchmarks/kills.py [--kills 50] [--seed 0] [--write]

Every process is a real ``grpo-zero train`` of the packaged model, killed with SIGKILL: at a random moment, or, every
third time, while a checkpoint is being written. Writes ``benchmarks/results/kills.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from provenance import commit

from grpo_zero.checkpoint.checksums import damage
from grpo_zero.observe.catalogue import find_metric
from grpo_zero.observe.files import read_rows
from grpo_zero.runs import latest_checkpoint, resumable_checkpoints

ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "kills.json"
SETTINGS = (
    "training.max_steps=400",
    "training.num_questions_per_batch=2",
    "training.batch_size=8",
    "training.max_gen_len=24",
    "training.eval_interval=10",
    "training.ckpt_save_interval=2",
    "training.ckpt_keep_every=0",
    "data.train_size=500",
    "data.test_size=8",
)
"""Over the quickstart's: short steps and frequent checkpoints, so that most kills lose something."""
MOST_WAIT_S = 1200.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = trial(Path(folder), options.kills, options.seed)
    print(json.dumps({key: value for key, value in result.items() if key != "table"}, indent=1))
    if options.write:
        PATH.write_text(json.dumps({"commit": commit()} | result, indent=1) + "\n", encoding="utf-8")
    if result["wrong_resumes"] or result["checkpoints_lost"] or not result["same_curve"] or not result["same_weights"]:
        sys.exit("a kill was not survived")


def trial(folder: Path, num_kills: int, seed: int, settings: tuple[str, ...] = SETTINGS) -> dict[str, Any]:
    """Kill and resume in ``folder``; what each kill cost, and whether the end is that of the unkilled run."""
    moments = random.Random(seed)
    assert start(folder, "unkilled", settings).wait(MOST_WAIT_S) == 0
    unkilled, killed = folder / "unkilled", folder / "killed"
    table: list[dict[str, Any]] = []
    while len(table) < num_kills:
        before = latest_step(killed)
        process = start(folder, "killed", settings)
        if len(table) % 3 == 2:
            moment = kill_while_saving(process, killed)
        else:
            moment = kill_after(process, killed, moments.uniform(0.0, 2.5))
        if moment is None:  # it came to its end before the kill
            break
        table.append({"kill": len(table) + 1, "moment": moment, "resumed_from": before} | losses(killed))
    assert start(folder, "killed", settings).wait(MOST_WAIT_S) == 0
    return {
        "settings": list(settings),
        "kills": len(table),
        "while_saving": sum("saving" in row["moment"] for row in table),
        "steps_redone": sum(row["steps_to_redo"] for row in table),
        "checkpoints_lost": sum(row["damaged_checkpoints"] for row in table),
        "wrong_resumes": sum(b["resumed_from"] != a["latest_checkpoint"] for a, b in pairwise(table)),
        "same_curve": curve(killed) == curve(unkilled),
        "same_weights": weights(killed) == weights(unkilled),
        "table": table,
    }


def start(folder: Path, name: str, settings: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """``train --resume auto``, as a script on a machine that may vanish would have it."""
    command = [sys.executable, "-m", "grpo_zero.cli", "train", "--resume", "auto", *settings]
    command += [f"training.log_dir={folder}", f"training.run_name={name}"]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)


def kill_after(process: subprocess.Popen[bytes], run: Path, seconds: float) -> str | None:
    """Kill so long after the process has read its config: the start alone, of the libraries, is the same each time."""
    log = run.parent / f"{run.name}.log"
    size = log.stat().st_size
    wait_for(process, lambda: log.stat().st_size > size)
    time.sleep(seconds)
    return kill(process, f"{seconds:.2f} s into the run")


def kill_while_saving(process: subprocess.Popen[bytes], run: Path) -> str | None:
    """Kill when a checkpoint is half written."""
    wait_for(process, lambda: any((run / "checkpoints").glob(".step_*.tmp-*")))
    asides = [path.name.partition(".tmp")[0][1:] for path in (run / "checkpoints").glob(".step_*.tmp-*")]
    return kill(process, f"saving {asides[0] if asides else 'was just over'}")


def wait_for(process: subprocess.Popen[bytes], condition: Any) -> None:
    started = time.monotonic()
    while not condition() and process.poll() is None and time.monotonic() - started < MOST_WAIT_S:
        time.sleep(0.0005)


def kill(process: subprocess.Popen[bytes], moment: str) -> str | None:
    process.send_signal(signal.SIGKILL)
    return moment if process.wait() == -signal.SIGKILL else None


def losses(run: Path) -> dict[str, Any]:
    """What the kill left behind."""
    done = [row["step"] for row in (read_rows(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else [])]
    saved = latest_step(run)
    checkpoints = resumable_checkpoints(run / "checkpoints")
    return {
        "last_step": max(done, default=0),
        "latest_checkpoint": saved,
        "steps_to_redo": max(done, default=0) - saved,
        "damaged_checkpoints": sum(damage(path) is not None for path in checkpoints),
    }


def latest_step(run: Path) -> int:
    checkpoint = latest_checkpoint(run / "checkpoints")
    return int(checkpoint.name.partition("_")[2]) if checkpoint else 0


def curve(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what was measured of time and memory."""
    rows = read_rows(run / "metrics.jsonl")
    return [{name: x for name, x in row.items() if is_repeatable(name)} for row in rows]


def is_repeatable(name: str) -> bool:
    metric = find_metric(name)
    return metric is None or metric.is_repeatable  # step and kind are no metrics


def weights(run: Path) -> str:
    """SHA-256 of the last checkpoint's weights and optimizer states."""
    checkpoint = latest_checkpoint(run / "checkpoints")
    assert checkpoint is not None
    files = sorted(checkpoint.rglob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


if __name__ == "__main__":
    main()
