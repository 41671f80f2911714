"""One step of each workload, alone in a process, against the committed results; ``--write`` commits to new ones.

    python benchmarks/steps.py W1=FOLDER W2=GGUF [--only CASE ...] [--write]

docs/benchmarks.md says what FOLDER and GGUF are. Writes ``benchmarks/results/steps.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import commit

from grpo_zero.bench.report import comparison

ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "steps.json"

_SMALL = (
    "training.micro_batch_tokens=1024",
    "training.recompute_activations=selective",
    "training.head_chunk_tokens=96",
    "training.reuse_memory=false",
)
_MANY = (
    "training.reuse_memory=false",
    "training.max_gen_len=16",
    "training.num_slots=64",
    "training.micro_batch_tokens=700",
)
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "W1": ("W1", ()),
    "W1, 8-bit moments": ("W1", ("training.moment_bits=8",)),
    "W1, 8-bit moments, small": (
        "W1",
        (
            "training.moment_bits=8",
            "training.micro_batch_tokens=190",
            "training.recompute_activations=full",
            "training.head_chunk_tokens=16",
            "training.reuse_memory=false",
        ),
    ),
    "W1, memory given back": ("W1", ("training.reuse_memory=false",)),
    "W1, not compiled": ("W1", ("training.decode_kernels=measured",)),
    "W2": ("W2", ()),
    "W2, not compiled": ("W2", ("training.decode_kernels=measured",)),
    "W2, small": ("W2", _SMALL),
    "W2, up to 512 tokens": ("W2", ("training.max_gen_len=512",)),
    "W2, 8 questions x 16 tokens": ("W2", (*_MANY, "training.num_questions_per_batch=8", "training.batch_size=64")),
    "W2, 64 questions x 16 tokens": ("W2", (*_MANY, "training.num_questions_per_batch=64", "training.batch_size=512")),
    "quickstart": ("quickstart", ()),
}
"""Workload and settings over its own."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="WORKLOAD=MODEL")
    parser.add_argument(
        "--only", nargs="+", choices=CASES, help="these cases; the committed figures of the others stay"
    )
    parser.add_argument("--repeats", type=int, default=3, help="timed steps of each, after one that is not")
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    models = dict(model.split("=", 1) for model in options.models)
    committed: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    results = dict(committed)
    for name in options.only or CASES:
        workload, settings = CASES[name]
        print(f"== {name}", flush=True)
        results[name] = {"commit": commit()} | measured(workload, models.get(workload), settings, options.repeats)
        if name in committed:
            print(comparison(results[name], committed[name], PATH.name), flush=True)
        if options.write:
            ordered = {case: results[case] for case in CASES if case in results}
            PATH.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def measured(workload: str, model: str | None, settings: tuple[str, ...], repeats: int) -> dict[str, Any]:
    """The document of ``grpo-zero bench`` in a process of its own, whose table is printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, "-m", "grpo_zero.cli", "bench", workload, *settings, "--repeats", str(repeats)]
        command += [*(["--model", model] if model else []), "--json", str(path)]
        output = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
        print("\n".join(output.splitlines()[:-1]), flush=True)
        return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
