"""The quickstart's first steps with each fast path and with its plain twin: how far the curves are apart.

    python benchmarks/same_curve.py [--write]

Writes ``benchmarks/results/same_curve.json``. Paths that add in another order differ in the last digits until a sampled token
falls the other way; from there on the curves are those of two seeds, so ``equal_steps`` counts the steps before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from provenance import commit

from grpo_zero.train.recorder import machine_facts

ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "same_curve.json"
BEFORE = "1887d47"
"""The last commit before any of this was made faster."""
STEPS = 10
SETTINGS = (
    f"training.max_steps={STEPS}",
    "training.eval_interval=0",
    "training.num_questions_per_batch=8",
    "training.batch_size=128",
    "training.micro_batch_tokens=32768",
    "training.head_chunk_tokens=32768",
)
"""One micro-batch, one chunk of the head, all slots at once, nothing computed again: the plainest there is."""
VARIANTS: dict[str, tuple[str, ...]] = {
    "again": (),
    "blocks computed again": ("training.recompute_activations=full",),
    "MLP product computed again": ("training.recompute_activations=selective",),
    "head by chunks of 64": ("training.head_chunk_tokens=64",),
    "micro-batches of 2048 tokens": ("training.micro_batch_tokens=2048",),
    "24 slots": ("training.num_slots=24",),
    "decoding not compiled": ("training.decode_kernels=plain",),
    "static decoding": ("training.decode=static",),
    "memory given back": ("training.reuse_memory=false",),
    "states on the host": ("training.memory_efficient_adamw=true",),
    "8-bit moments": ("training.moment_bits=8",),
}
CURVES = ("loss", "grad_norm", "entropy", "reward")
SAMPLED = ("reward", "length", "num_tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    plain = curves(())
    variants = {}
    for name, settings in VARIANTS.items():
        variants[name] = {"settings": list(settings), **apart(curves(settings), plain)}
        print(f"{name:30}", json.dumps(variants[name]), flush=True)
    with checked_out(BEFORE) as root:
        variants[f"the code before, {BEFORE}"] = {"settings": [], **apart(curves((), root), plain)}
    print(json.dumps(variants[f"the code before, {BEFORE}"]), flush=True)
    result = {
        "commit": commit(),
        "command": "python benchmarks/same_curve.py --write",
        "settings": list(SETTINGS),
        "steps": STEPS,
        "plain": plain,
        "variants": variants,
        "machine": machine_facts(torch.device("cpu")),
    }
    if options.write:
        PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def curves(settings: tuple[str, ...], root: Path = ROOT) -> list[dict[str, float]]:
    """What was recorded of each step, by the code in ``root``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpo_zero.cli", "train", "--config", "quickstart"]
        command += [*SETTINGS, *settings, f"training.log_dir={folder}", "training.run_name=run"]
        subprocess.run(command, check=True, cwd=root, stdout=subprocess.DEVNULL)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    return [{name: step[name] for name in {*CURVES, *SAMPLED}} for step in steps]


@contextmanager
def checked_out(name: str) -> Iterator[Path]:
    """A commit in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        worktree = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*worktree, "add", "--quiet", "--detach", folder, name], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run([*worktree, "remove", "--force", folder], check=True)


def apart(found: list[dict[str, float]], plain: list[dict[str, float]]) -> dict[str, Any]:
    """Steps with the same answers, and over them the largest relative difference of each curve; the loss is about 0: absolute."""
    pairs = list(zip(found, plain, strict=True))
    equal = next((i for i, (a, b) in enumerate(pairs) if any(a[name] != b[name] for name in SAMPLED)), len(pairs))
    difference = {
        name: max(
            (abs(a[name] - b[name]) / (1 if name == "loss" else abs(b[name])) for a, b in pairs[:equal]), default=0.0
        )
        for name in CURVES
    }
    return {"equal_steps": equal, "difference": difference}


if __name__ == "__main__":
    main()
