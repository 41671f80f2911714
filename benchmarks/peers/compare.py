"""TRL and GRPO-Zero on the same step, one after the other on this machine: seconds, peak memory and their ratios.

    python benchmarks/peers/compare.py W1=FOLDER W2=FOLDER "W2, small=FOLDER"

Names are cases of ``benchmarks/steps.py``, whose settings are ours; TRL has the fastest it has for the workload. ``FOLDER`` is a
Hugging Face folder of the workload's model (docs/benchmarks.md). Needs the ``test`` dependencies. The prompts are equal token for
token; the completions are each trainer's own, so W2's have other lengths: ``sampled_tokens`` tells. Writes
``benchmarks/results/peers.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from provenance import commit  # noqa: E402
from steps import CASES  # noqa: E402

MICRO_BATCH = {"W1": 8, "W2": 4}
"""TRL's fastest setting of those tried: completions in one forward, no recomputation."""
PHASES = ("sample_s", "update_s", "step_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="CASE=FOLDER")
    parser.add_argument("--repeats", type=int, default=2, help="timed steps of each in a turn, after one that is not")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each trainer")
    options = parser.parse_args()
    path = ROOT / "benchmarks" / "results" / "peers.json"
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"workloads": {}}
    result["command"] = 'python benchmarks/peers/compare.py W1=FOLDER W2=FOLDER "W2, small=FOLDER"'
    for name, folder in (model.split("=", 1) for model in options.models):
        turns = {"repeats": options.repeats, "rounds": options.rounds}
        result["workloads"][name] = {
            "commit": commit(),
            **turns,
            **compared(name, folder, options.repeats, options.rounds),
        }
        print(name, json.dumps(result["workloads"][name]["ratios"]), flush=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def compared(name: str, folder: str, repeats: int, rounds: int) -> dict[str, Any]:
    """Both trainers' figures, round by round, and how many times as much TRL takes of each: the median of its seconds over ours.

    The two take turns, since what else the machine does changes from minute to minute.
    """
    workload, settings = CASES[name]
    trl_step = [str(Path(__file__).with_name("trl_step.py")), workload, "--micro-batch", str(MICRO_BATCH[workload])]
    theirs, ours = [], []
    for _ in range(rounds):
        theirs.append(measured([*trl_step, "--model", folder], repeats))
        ours.append(measured(["-m", "grpo_zero.cli", "bench", workload, *settings, "--model", folder], repeats))
    ratios = {key: _median(theirs, key) / _median(ours, key) for key in PHASES}
    ratios["peak_gib"] = max(run["peak_gib"] for run in theirs) / max(run["peak_gib"] for run in ours)
    return {"trl": theirs, "grpo_zero": ours, "ratios": {key: round(ratio, 2) for key, ratio in ratios.items()}}


def _median(runs: list[dict[str, Any]], key: str) -> float:
    """Of the rounds' medians."""
    values = [run[key]["median"] if isinstance(run[key], dict) else statistics.median(run[key]) for run in runs]
    return statistics.median(values)


def measured(program: list[str], repeats: int) -> dict[str, Any]:
    """What a program writes, run alone in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, *program, "--repeats", str(repeats), "--json", str(path)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
