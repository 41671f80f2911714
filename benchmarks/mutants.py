"""Are the verifier's tests able to fail? Each small change of its source has to be caught by them.

    python benchmarks/mutants.py [--write] [--only TEXT] [--tests FILE ...]

A change swaps an operator, moves a number by one, drops a condition, a statement, a branch or half of an and, replaces a method
by its mirror image, or shortens a text. Words of messages are left alone. Every changed source is run in a process of its own; a
test that fails, or never ends, catches it. The exit code is 1 where one survives that is not known to mean the same. Writes
``benchmarks/results/mutants.json``. Needs fork, and some minutes.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from mutations import Mutant, mutants
from provenance import commit

ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "mutants.json"
FOLDER = ROOT / "grpo_zero" / "tasks"
PARTS: dict[str, set[str]] = {
    "expressions": set(),
    "tags": set(),
    "countdown": {"verify", "wrong_because", "_times", "FORMAT_REWARD", "ANSWER_REWARD"},
}
"""Modules, and which of their functions and constants; all of them where none is named."""
TESTS = [
    f"tests/unit/tasks/test_{name}.py"
    for name in ("expressions", "tags", "countdown_cases", "verifier_oracles", "countdown_any_text")
]
TIMEOUT_S = 120
ROOM = 4 * 2**30
"""Bytes of address space a changed source may take: some fill memory without end."""
_BINDING = "_BINDING = {'(': %s, '+': 1, '-': 1, '*': 2, '/': %s, _NEGATE: %s}"
_DIGIT = "if '0' <= token[%s] <= '%s':"
_SPACE = r"_TOKEN = re.compile('[0-9]+|[A-Za-z]+|\\*\\*|//|%s.', re.DOTALL)"
_OPEN = "last_open = text.rfind(OPEN_ANSWER, 0, max(last_close, %s))"
EQUIVALENT = {
    "  ->  ".join((_SPACE % r"\\s+|", _SPACE % "")): "white space is skipped, at once or character by character",
    "_NEGATE = 'negate'  ->  _NEGATE = 'egate'": "a name that no text can hold",
    "_NEGATE = 'negate'  ->  _NEGATE = 'negate~'": "a name that no text can hold",
    f"{_BINDING % (0, 2, 3)}  ->  {_BINDING % (-1, 2, 3)}": "anything below 1 stops every reduction",
    f"{_BINDING % (0, 2, 3)}  ->  {_BINDING % (0, 3, 3)}": "a * b / c is a * (b / c) in exact numbers",
    f"{_BINDING % (0, 2, 3)}  ->  {_BINDING % (0, 2, 4)}": "negation binds tightest",
    f"{_BINDING % (0, 2, 3)}  ->  {_BINDING % (0, 2, 2)}": "an operator that binds as tightly reduces it too",
    f"{_DIGIT % (0, 9)}  ->  {_DIGIT % (-1, 9)}": "a token is all digits or begins and ends with none",
    f"{_DIGIT % (0, 9)}  ->  {_DIGIT % (0, '9~')}": "no character lies between 9 and 9~",
    "if token in '+-*/':  ->  if token in '+-*/~':": "~ was refused before",
    "return values[0]  ->  return values[-1]": "one value is left",
    "_, _, after_reasoning = text.partition(CLOSE_THINK)  ->  _, _, after_reasoning = text.rpartition(CLOSE_THINK)": (
        "the tag stands once"
    ),
    "return after_reasoning.lstrip().startswith(OPEN_ANSWER)  ->  return after_reasoning.strip().startswith(OPEN_ANSWER)": (
        "the tag holds no white space"
    ),
    "  ->  ".join((_OPEN % 0, _OPEN % 1)): "no tag fits into one character",
}
"""Changes that mean the same, as printed, and why."""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, name: str, *_: object) -> object:
        return importlib.util.spec_from_loader(name, self, origin=str(self.path)) if name == self.name else None

    def exec_module(self, module: object) -> None:
        exec(compile(self.source, str(self.path), "exec"), module.__dict__)


def outcome(mutant: Mutant, tests: list[str]) -> str:
    """``caught``, ``timed out`` or ``survived``."""
    child = os.fork()
    if not child:
        _run_tests(mutant, tests)
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "caught"
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timed out"


def _run_tests(mutant: Mutant, tests: list[str]) -> None:
    """In the child: never returns."""
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").is_file() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM,) * 2)
    path = FOLDER / f"{mutant.module}.py"
    sys.meta_path.insert(0, _Changed(f"grpo_zero.tasks.{mutant.module}", path, mutant.source))
    os.chdir(ROOT)
    # Plain asserts: pytest cannot rewrite those of plugins that are imported already.
    code = pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *tests])
    os._exit(int(code))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    parser.add_argument("--only", metavar="TEXT", default="", help="changes that hold this text")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="instead of the verifier's")
    options = parser.parse_args()
    _warm_up()
    results: dict[str, dict[str, object]] = {}
    unknown = set(EQUIVALENT)
    for module in PARTS:
        path = FOLDER / f"{module}.py"
        found_here = list(mutants(path, PARTS[module]))
        unknown -= {mutant.change for mutant in found_here}
        chosen = [mutant for mutant in found_here if options.only in mutant.change]
        unchanged = Mutant(module, 0, "none", path.read_text(encoding="utf-8"))
        if chosen and outcome(unchanged, options.tests) != "survived":
            sys.exit(f"the tests fail without any change of {module}.py: mend them first")
        counts = {"caught": 0, "timed out": 0, "equivalent": 0}
        survivors = []
        for mutant in chosen:
            if mutant.change in EQUIVALENT:
                counts["equivalent"] += 1
                continue
            found = outcome(mutant, options.tests)
            if found == "survived":
                survivors.append(f"{mutant.line}: {mutant.change}")
                print(f"survived: {module}.py {survivors[-1]}", flush=True)
            else:
                counts[found] += 1
        results[module] = {"mutants": len(chosen), **counts, "survivors": survivors}
        print(f"{module}: {json.dumps(results[module])}", flush=True)
    if unknown:
        sys.exit(f"EQUIVALENT has changes that no source has any more: {', '.join(sorted(unknown))}")
    if options.write:
        result = {
            "commit": commit(),
            "command": "python benchmarks/mutants.py --write",
            "tests": TESTS,
            "modules": results,
            "equivalent": EQUIVALENT,
        }
        PATH.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any(found["survivors"] for found in results.values()))


def _warm_up() -> None:
    """Import what the tests need and no change touches, once for all children."""
    import hypothesis  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import pytest  # noqa: F401
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
