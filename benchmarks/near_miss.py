"""Does a task of 30 lines learn? The README's two lines on ``examples/near_miss.py``, with their curve kept.

    python benchmarks/near_miss.py [--write]

Writes ``benchmarks/results/near_miss.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from provenance import commit
from watched import watched_train

PATH = Path(__file__).parent / "results" / "near_miss.json"
ARGUMENTS = ("--task", "examples/near_miss.py", "training.max_steps=20")
"""As in README, with evaluations in between."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    run = watched_train(*ARGUMENTS, "training.eval_interval=5")
    result = {
        "commit": commit(),
        "command": "python benchmarks/near_miss.py",
        "arguments": [*ARGUMENTS, "training.eval_interval=5"],
        "curve": run.curve,
        "reward_by_step": [round(row["reward"], 4) for row in run.steps],
        "before": run.summary["before"],
        "after": run.summary["after"],
        "seconds": run.summary["seconds"],
        "machine": run.summary["machine"],
    }
    print(json.dumps(result["curve"], indent=1))
    if options.write:
        PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
