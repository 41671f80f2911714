"""Does memory stay flat? The quickstart's loop over 20,000 answers and more, watched from outside.

    python benchmarks/soak.py [--steps 60] [--write] [section.key=value ...]

Writes ``benchmarks/results/soak.json``: resident memory and open files at the beginning, after a warm-up, and at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from provenance import commit
from watched import watched_train

PATH = Path(__file__).parent / "results" / "soak.json"
WARM_UP_STEPS = 5
WINDOW = 10
"""Steps whose peaks are compared, after the warm-up and at the end, by their medians."""
MOST_GROWTH = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    parser.add_argument("overrides", nargs="*", default=[])
    options = parser.parse_args()
    settings = [f"training.max_steps={options.steps}", "training.ckpt_save_interval=20", *options.overrides]
    run = watched_train(*settings)
    first, last = slice(WARM_UP_STEPS, WARM_UP_STEPS + WINDOW), slice(-WINDOW, None)
    before, after = (statistics.median(run.peak_gib_by_step[window]) for window in (first, last))
    files = [max(run.open_files_by_step[window]) for window in (first, last)]
    result = {
        "commit": commit(),
        "command": f"python benchmarks/soak.py --steps {options.steps}",
        "settings": settings,
        "answers": 384 * len(run.steps) if not options.overrides else None,
        "seconds": run.summary["seconds"],
        "resident_gib": {"after warm-up": before, "at the end": after, "growth": after / before - 1},
        "open_files": {"after warm-up": files[0], "at the end": files[1]},
        "peak_gib_by_step": [round(x, 4) for x in run.peak_gib_by_step],
        "machine": run.summary["machine"],
    }
    print(json.dumps({key: value for key, value in result.items() if key != "peak_gib_by_step"}, indent=1))
    if options.write:
        PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if after / before - 1 > MOST_GROWTH or files[1] > files[0]:
        sys.exit("memory or open files grew")


if __name__ == "__main__":
    main()
