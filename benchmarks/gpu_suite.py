"""Everything about a GPU that the tests on a CPU cannot say, in one command of at most eight minutes.

    python benchmarks/gpu_suite.py --json benchmarks/results/gpu_suite.json

(a) values against the CPU's, (b) which models fit which memory, (c) times. Random weights and prompts; nothing is downloaded.
Each cell runs in a process of its own, so one that runs out of memory spoils no other; on a CPU those of (b) only. What the time
does not allow is left out and named. The last line is one JSON document. ``--device cpu --tiny`` runs every path on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gpu_memory
import gpu_times
import gpu_values
import torch
from gpu_models import Load
from provenance import commit

from grpo_zero.train.recorder import machine_facts

ROOT = Path(__file__).parents[1]
BUDGET_S = 480.0
FEWEST_S = 15.0
"""A cell is not begun with less time left."""

Measure = Callable[[torch.device], Iterator[dict[str, object]]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One process's work."""

    name: str
    measure: Measure


def cells(is_tiny: bool) -> list[Cell]:
    """In the order to run: what matters most first, the largest models last."""
    shapes, caps, timed = ["0.5B", "1.5B", "3B", "7B"], [16, 24, 48], ["0.5B", "3B"]
    batches, memory_load, times_load = [64, 256], Load(128, 64, 2), Load(128, 160, 8)
    if is_tiny:
        shapes, caps, timed = ["tiny"], [16, 24], ["tiny"]
        batches, memory_load, times_load = [4], Load(5, 4, 2), Load(5, 8, 2)
    times = [
        Cell(f"times {shape}", partial(gpu_times.measure, shape=shape, batches=batches, load=times_load))
        for shape in timed
    ]
    memory = [
        Cell(f"memory {shape} {cap}", partial(gpu_memory.measure, shape=shape, cap_gib=cap, load=memory_load))
        for shape in shapes
        for cap in caps
    ]
    return [Cell("values", gpu_values.measure), *times, *memory]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that a CPU runs in seconds")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="seconds for all")
    parser.add_argument("--json", type=Path, help="file to write the document to")
    parser.add_argument("--cell", help="run this cell alone, here; one JSON line a record")
    options = parser.parse_args()
    if options.cell is not None:
        chosen = next(cell for cell in cells(options.tiny) if cell.name == options.cell)
        for record in chosen.measure(torch.device(options.device)):
            print(json.dumps(record), flush=True)
        return
    started, records = time.perf_counter(), []
    for cell in cells(options.tiny):
        left_s = options.budget_s - (time.perf_counter() - started)
        if options.device == "cpu" and not cell.name.startswith("memory"):
            found = [{"cell": cell.name, **record} for record in cell.measure(torch.device("cpu"))]
        else:
            found = implied(cell.name, records) or run_cell(cell.name, options.device, options.tiny, left_s)
        records += found
        for record in found:
            print(row(record), flush=True)
    document = {
        "machine": machine_facts(torch.device(options.device)),
        "torch": torch.__version__,
        "commit": known_commit(),
        "budget_s": options.budget_s,
        "seconds": round(time.perf_counter() - started, 1),
        "records": records,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))


def implied(name: str, records: list[dict[str, object]]) -> list[dict[str, object]]:
    """A model that fits under a cap fits under the larger ones: the record that says so, or none."""
    part, *what = name.split()
    if part != "memory":
        return []
    fits = [record for record in records if record.get("fits") and record["shape"] == what[0]]
    if not fits:
        return []
    return [fits[0] | {"cell": name, "cap_gib": int(what[1]), "implied_by_cap_gib": fits[0]["cap_gib"]}]


def run_cell(name: str, device: str, is_tiny: bool, left_s: float) -> list[dict[str, object]]:
    """The cell's records; one that says why where it was left out, failed or took too long. What it had is kept."""
    part = name.split()[0]
    if left_s < FEWEST_S:
        return [{"part": part, "cell": name, "skipped": "no time left"}]
    command = [sys.executable, __file__, "--cell", name, "--device", device, *(["--tiny"] if is_tiny else [])]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end: list[dict[str, object]] = []
    try:
        out, err = process.communicate(timeout=left_s)
        if process.returncode:
            reason = (err.strip().splitlines() or ["no message"])[-1]
            end = [{"part": part, "cell": name, "failed": f"exit {process.returncode}: {reason}"}]
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        end = [{"part": part, "cell": name, "skipped": "stopped when the time was over"}]
    return [{"cell": name, **json.loads(line)} for line in out.splitlines() if line.startswith("{")] + end


def row(record: dict[str, object]) -> str:
    """A line of the table: the cell, then what was found."""

    def show(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    facts = [f"{key} {show(value)}" for key, value in record.items() if key not in ("cell", "part", "shape", "what")]
    return f"{record['cell']!s:<18}{record.get('what', '')!s:<54}{'  '.join(facts)}"


def known_commit() -> str | None:
    """None where the files came without their history."""
    try:
        return commit()
    except (OSError, subprocess.CalledProcessError):
        return None


if __name__ == "__main__":
    main()
