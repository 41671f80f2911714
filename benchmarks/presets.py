"""Trains every algorithm preset on the quickstart, seed beside seed, and writes one JSON.

python benchmarks/presets.py --seeds 1337 1

Each rollout is learned from in two updates of half its questions each, at half the learning rate: with one update all ratios
are 1, and presets that differ only in how they clip would be the same run. A run has one thread, and the seeds of a preset run
side by side; ``cpu_seconds`` is processor time, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import commit

from grpo_zero.presets import PRESETS

RESULTS = Path(__file__).parent / "results" / "presets.json"
ONE_UPDATE = "rloo, one update a rollout"
"""RLOO has no ratio: beside the run that is off policy in every second update, one that never is."""
SETTINGS = ["training.updates_per_rollout=2", "training.questions_per_update=12", "training.learning_rate=1e-4"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1337, 1])
    parser.add_argument("--presets", nargs="+", default=[*PRESETS, ONE_UPDATE])
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    result: dict[str, Any] = {
        "command": "python benchmarks/presets.py " + " ".join(map(str, ["--seeds", *options.seeds])),
        "commit": commit(),
        "config": "quickstart",
        "settings": SETTINGS,
        "threads_per_run": 1,
        "runs_at_once": len(options.seeds),
        "presets": {},
    }
    if options.output.is_file():
        earlier = json.loads(options.output.read_text())
        if earlier["commit"] != result["commit"]:
            raise SystemExit(
                f"{options.output} holds results of commit {earlier['commit']}: remove it, or give another --output"
            )
        result["presets"] = earlier["presets"]
    for preset in options.presets:
        if preset in result["presets"]:
            continue  # measured by an earlier call that was cut short
        settings = [] if preset == ONE_UPDATE else SETTINGS
        result["presets"][preset] = trained(preset.split(",")[0], settings, options.seeds)
        options.output.write_text(json.dumps(result, indent=2) + "\n")
        print(f"wrote {preset} to {options.output}", flush=True)


def trained(preset: str, settings: list[str], seeds: list[int]) -> list[dict[str, Any]]:
    """The summaries of one run a seed, all at once."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for seed in seeds:
            words = [f"algorithm={preset}", f"training.random_seed={seed}", *settings]
            words += [f"training.log_dir={folder}", f"training.run_name=seed{seed}"]
            command = [sys.executable, "-m", "grpo_zero.cli", "train", *words]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        usages = [os.wait4(process.pid, 0)[1:] for process in started]
        if any(status for status, _ in usages):
            raise SystemExit(f"a run of {preset} failed")
        runs = []
        for seed, (_, usage) in zip(seeds, usages, strict=True):
            summary = json.loads((Path(folder) / f"seed{seed}" / "summary.json").read_text())
            rows = [json.loads(x) for x in (Path(folder) / f"seed{seed}" / "metrics.jsonl").read_text().splitlines()]
            summary["cpu_seconds"] = round(usage.ru_utime + usage.ru_stime, 1)
            summary["curve"] = [
                {"step": row["step"], **{key: row[f"eval/{key}"] for key in ("success", "length", "truncated_share")}}
                for row in rows
                if row["kind"] == "eval"
            ]
            last = [row for row in rows if row["kind"] == "train"][-10:]
            summary["last_10_steps"] = {
                key: sum(row[key] for row in last) / len(last)
                for key in last[0]
                if key
                in ("entropy", "kl_old", "clip_fraction_low", "clip_fraction_high", "grad_norm", "length", "kept_share")
            }
            runs.append(summary)
    return runs


if __name__ == "__main__":
    main()
