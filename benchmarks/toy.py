"""Trains the toy reasoner of ``grpo_zero/reference/toy.py``, healthy and broken, and writes one JSON.

python benchmarks/toy.py
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import commit

from grpo_zero.reference import toy
from grpo_zero.train.recorder import machine_facts

RESULTS = Path(__file__).parent / "results" / "toy.json"
SEEDS = (0, 1, 2)
WINDOW = 20


def main() -> None:
    result: dict[str, Any] = {
        "command": "python benchmarks/toy.py",
        "commit": commit(),
        "seeds": SEEDS,
        "window": WINDOW,
        "machine": machine_facts(torch.device("cpu")),
        "runs": {},
    }
    for name, pair in {"working": (toy.WORKING,), **toy.BREAKAGES}.items():
        for kind, config in zip(("healthy", "broken"), pair, strict=False):
            result["runs"][f"{name}, {kind}" if len(pair) == 2 else name] = curves(config)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {RESULTS}")


def curves(config: toy.ToyConfig) -> dict[str, Any]:
    """Each number in windows of steps, mean over the seeds; a window without one (no wrong answer) is null."""
    started = time.perf_counter()
    histories = [toy.train(replace(config, seed=seed)) for seed in SEEDS]
    names = sorted({name for history in histories for facts in history for name in facts})
    table = {name: np.array([[f.get(name, np.nan) for f in history] for history in histories]) for name in names}
    windows = {}
    for name, values in table.items():
        cut = values.reshape(len(SEEDS), -1, WINDOW)
        known = ~np.isnan(cut)
        sums, counts = np.where(known, cut, 0).sum((0, 2)), known.sum((0, 2))
        windows[name] = [round(float(s / n), 4) if n else None for s, n in zip(sums, counts, strict=True)]
    settings = {key: value for key, value in asdict(config).items() if key != "seed"}
    return {
        "settings": settings,
        "seconds_a_run": round((time.perf_counter() - started) / len(SEEDS), 2),
        "curves": windows,
    }


if __name__ == "__main__":
    main()
