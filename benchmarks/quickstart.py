"""How much does the quickstart learn? Runs it once per seed and writes benchmarks/results/quickstart.json.

python benchmarks/quickstart.py [--seeds 1337 1 2] [section.key=value ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from provenance import commit

RESULTS = Path(__file__).parent / "results" / "quickstart.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1337, 1, 2])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("overrides", nargs="*", default=[])
    options = parser.parse_args()
    runs = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            settings = [f"training.random_seed={seed}", f"training.log_dir={folder}", "training.run_name=run"]
            command = [sys.executable, "-m", "grpo_zero.cli", "train", *settings, *options.overrides]
            subprocess.run(command, check=True)
            run = Path(folder) / "run"
            summary = json.loads((run / "summary.json").read_text())
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        summary["curve"] = [
            {key: row[f"eval/{key}"] for key in ("success", "greedy_success", "length", "truncated_share")}
            | {"step": row["step"]}
            for row in rows
            if row["kind"] == "eval"
        ]
        runs.append(summary)
    gains = [run["after"]["success"] - run["before"]["success"] for run in runs]
    result = {
        "command": "python benchmarks/quickstart.py "
        + " ".join(map(str, ["--seeds", *options.seeds, *options.overrides])),
        "commit": commit(),
        "config": "quickstart",
        "success_gain_points": {
            "min": 100 * min(gains),
            "max": 100 * max(gains),
            "mean": 100 * sum(gains) / len(gains),
        },
        "seconds": [run["seconds"] for run in runs],
        "runs": runs,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
