"""How long the verifiers take, and a million hostile texts through each: none may raise, none may take long.

    python benchmarks/verifiers.py [--texts 1000000] [--write]

Writes ``benchmarks/results/verifiers.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from provenance import commit

from grpo_zero.tasks import Task, load_task
from grpo_zero.train.recorder import machine_facts
from grpo_zero.types import Problem

ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "verifiers.json"
SEED = 0
PIECES = (
    *"0123456789+-*/()=.,^$%{}\\ \n\t",
    *("<think>", "</think>", "<answer>", "</answer>", "####", "\\boxed{", "\\frac{1}{2}", "**", "//", "<<1+1=2>>"),
    *("1e400", "nan", "inf", "9**9**9", "__import__('os')", "²", "٣", "−", "\ud800", "\x00", "\x1b[31m", "the", "x"),
)
"""What hostile texts are made of."""
LONG = 5000
"""Every so many texts one is a single piece over and over, up to 20,000 characters."""


def right_countdown(rng: random.Random) -> str:
    thoughts = "\n".join(f"{rng.randint(1, 99)}+{rng.randint(1, 99)} is {rng.randint(2, 198)}, no" for _ in range(20))
    return f"{thoughts}</think>\n<answer>(3+5)*2-1</answer>"


def right_gsm8k(rng: random.Random) -> str:
    lines = (
        f"She has {rng.randint(1, 99)} * 2 = ${rng.randint(2, 198)}.00 left, which is 1,000 less." for _ in range(10)
    )
    return "\n".join(lines) + "\n#### 15"


CASES: dict[str, tuple[dict[str, Any], Callable[[random.Random], str]]] = {
    "countdown": ({"nums": [3, 5, 2, 1], "target": 15}, right_countdown),
    "gsm8k": ({"question": "How many?", "answer": "#### 15"}, right_gsm8k),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    tasks = {}
    for name, (row, right) in CASES.items():
        task = load_task(name)
        problem = task.problem(row)
        tasks[name] = usual(task, problem, right) | hostile(task, problem, options.texts)
        print(name, json.dumps(tasks[name]), flush=True)
    result = {
        "commit": commit(),
        "command": "python benchmarks/verifiers.py --write",
        "seed": SEED,
        "tasks": tasks,
        "machine": machine_facts(torch.device("cpu")),
    }
    if options.write:
        PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def usual(task: Task, problem: Problem, right: Callable[[random.Random], str]) -> dict[str, float]:
    """Microseconds for a right answer of usual length."""
    rng = random.Random(SEED)
    texts = [right(rng) for _ in range(2000)]
    assert all(task.verify(problem, text).correct for text in texts)
    micros = [1e6 * seconds(task, problem, text) for text in texts]
    length = statistics.mean(map(len, texts))
    return {"median_us": round(statistics.median(micros), 1), "mean_characters": round(length)}


def hostile(task: Task, problem: Problem, count: int) -> dict[str, float]:
    """The slowest of ``count`` texts in milliseconds (best of three, so that it is the text and not the machine)."""
    slowest = 0.0
    for text in texts(count):
        taken = seconds(task, problem, text)
        if taken > slowest:
            slowest = max(slowest, min(taken, *(seconds(task, problem, text) for _ in range(2))))
    return {"texts": count, "slowest_ms": round(1e3 * slowest, 2)}


def texts(count: int) -> Iterator[str]:
    rng = random.Random(SEED)
    for index in range(count):
        if index % LONG == 0:
            piece = rng.choice(PIECES)
            yield piece * (20_000 // len(piece))
        else:
            yield "".join(rng.choices(PIECES, k=rng.randint(0, 60)))


def seconds(task: Task, problem: Problem, text: str) -> float:
    start = time.perf_counter()
    task.verify(problem, text)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
