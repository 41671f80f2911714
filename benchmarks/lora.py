"""LoRA beside full fine-tuning on the quickstart: success, seconds, memory.

    python benchmarks/lora.py [--seeds 1337] [--write]

Writes ``benchmarks/results/lora.json``.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from provenance import commit
from watched import watched_train

PATH = Path(__file__).parent / "results" / "lora.json"
VARIANTS: dict[str, tuple[str, ...]] = {
    "all weights": (),
    "LoRA, rank 32": ("lora.rank=32", "lora.alpha=32", "training.learning_rate=2e-3"),
}
"""Over the quickstart's settings. Ten times its learning rate, as is usual for adapters."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1337])
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for seed in options.seeds:
        for name, settings in VARIANTS.items():
            results[name].append({"seed": seed} | measured(*settings, f"training.random_seed={seed}"))
            print(f"{name}, seed {seed}: {results[name][-1]['curve']}", flush=True)
    document = {
        "commit": commit(),
        "command": f"python benchmarks/lora.py --seeds {' '.join(map(str, options.seeds))}",
        "variants": {name: {"settings": list(VARIANTS[name]), "runs": runs} for name, runs in results.items()},
    }
    if options.write:
        PATH.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measured(*settings: str) -> dict[str, Any]:
    """One run of the quickstart."""
    run = asdict(watched_train(*settings))
    kept = ("seconds", "step_s_median", "peak_gib", "before", "after", "machine")
    return {key: run["summary"][key] for key in kept} | {
        "curve": run["curve"],
        "resident_gib": round(max(run["peak_gib_by_step"]), 3),
    }


if __name__ == "__main__":
    main()
