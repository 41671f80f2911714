"""Which lines and branches of the parts that money and time hang on are run by tests. Needs coverage, which nothing else does:

    uv run --group test --extra reasoning-gym --with coverage python benchmarks/covered.py [--write]

Writes ``benchmarks/results/coverage.json``; the exit code is 1 where a part is below the goal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import coverage
from provenance import commit

ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "coverage.json"
GOAL = 95.0
PARTS = {
    "tasks": ("grpo_zero/tasks/",),
    "algorithms": ("grpo_zero/algorithms/",),
    "checkpoint": ("grpo_zero/checkpoint/",),
    "config": ("grpo_zero/config/", "grpo_zero/settings.py", "grpo_zero/presets.py", "grpo_zero/changes.py"),
    "text": ("grpo_zero/text/",),
}
"""Each part as the beginnings of its files' paths."""
TESTS = (
    "tests/unit/tasks",
    "tests/unit/algorithms",
    "tests/unit/checkpoint",
    "tests/unit/config",
    "tests/unit/text",
    "tests/unit/train/test_algorithm_parts.py",
    "tests/unit/train/test_checkpoints.py",
    "tests/unit/train/test_going_on.py",
    "tests/parity/test_reference.py",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = measure(Path(folder))
    parts = {name: share(files, beginnings) for name, beginnings in PARTS.items()}
    for name, found in parts.items():
        print(f"{name}: {found['lines']:.1f} % of {found['num_lines']} lines, {found['branches']:.1f} % of branches")
        for place in found["missing"]:
            print(f"  {place}")
    result = {
        "commit": commit(),
        "command": "python benchmarks/covered.py --write",
        "coverage": coverage.__version__,
        "tests": list(TESTS),
        "parts": parts,
    }
    if options.write:
        PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(any(min(found["lines"], found["branches"]) < GOAL for found in parts.values()))


def measure(folder: Path) -> Mapping[str, Any]:
    """Run the tests and return coverage's facts by file: of pytest and of workers of multiprocessing, not of other programs."""
    settings = folder / "coverage.ini"
    settings.write_text(
        f"[run]\nbranch = True\nsource = grpo_zero\ndata_file = {folder / 'data'}\nparallel = True\n"
        "concurrency = thread,multiprocessing\n"
    )
    tool = [sys.executable, "-m", "coverage"]
    rc = f"--rcfile={settings}"
    tests = subprocess.run([*tool, "run", rc, "-m", "pytest", *TESTS], cwd=ROOT, check=False)
    if tests.returncode:
        sys.exit("the tests fail: mend them first")
    subprocess.run([*tool, "combine", rc, "--quiet"], cwd=ROOT, check=True)
    subprocess.run([*tool, "json", rc, "--quiet", "-o", str(folder / "found.json")], cwd=ROOT, check=True)
    return json.loads((folder / "found.json").read_text(encoding="utf-8"))["files"]


def share(files: Mapping[str, Any], beginnings: tuple[str, ...]) -> dict[str, Any]:
    """Percent of lines and of branches of one part, and where the others are."""
    found = {path: facts for path, facts in files.items() if path.startswith(beginnings)}
    assert found, beginnings

    def total(key: str) -> int:
        return sum(facts["summary"][key] for facts in found.values())

    missing = []
    for path, facts in sorted(found.items()):
        jumps = [f"{start}->{end}" for start, end in facts["missing_branches"] if start not in facts["missing_lines"]]
        places = [*map(str, facts["missing_lines"]), *jumps]
        if places:
            missing.append(f"{path}: {', '.join(places)}")
    return {
        "lines": round(100 * total("covered_lines") / total("num_statements"), 2),
        "branches": round(100 * total("covered_branches") / max(1, total("num_branches")), 2),
        "num_lines": total("num_statements"),
        "missing": missing,
    }


if __name__ == "__main__":
    sys.exit(main())
