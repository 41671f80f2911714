"""Are the verifier's tests able to fail? Each small change of its source has to be caught by them.

    python benchmarks/mutants.py [--write] [--only TEXT] [--tests FILE ...]

A change swaps an operator, moves a number by one, drops a condition, a statement, a branch or half of an and, replaces a method
by its mirror image, or shortens a text. Words of messages are left alone. Every changed source is run in a process of its own; a
test that fails, or never ends, catches it. The exit code is 1 where one survives that is not known to mean the same. Writes
``benchmarks/results/mutants.json``. Needs fork, and some minutes.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
COMPARED = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
MIRRORED = {
    "strip": ("lstrip", "rstrip"),
    "lstrip": ("strip",),
    "startswith": ("endswith",),
    "endswith": ("startswith",),
    "partition": ("rpartition",),
    "rpartition": ("partition",),
    "rfind": ("find",),
    "index": ("rindex",),
    "any": ("all",),
    "all": ("any",),
}
WORDING = {"ExpressionError", "UserError"}
"""What these are called with is for people."""
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


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed source."""

    module: str
    line: int
    change: str
    """The statement before and after."""
    source: str


def mutants(module: str) -> Iterator[Mutant]:
    """Every single change of a module."""
    source = (FOLDER / f"{module}.py").read_text(encoding="utf-8")
    unchanged = ast.unparse(ast.parse(source))
    count = sum(1 for _ in _sites(ast.parse(source), PARTS[module]))
    for site in range(count):
        # A fresh tree each time, changed in one place.
        tree = ast.parse(source)
        statement, apply = next(s for index, s in enumerate(_sites(tree, PARTS[module])) if index == site)
        before, line = _first_lines(statement), statement.lineno
        replaced = apply()
        after = _first_lines(statement if replaced is None else replaced)
        changed = ast.unparse(ast.fix_missing_locations(tree))
        if changed != unchanged:
            yield Mutant(module, line, f"{before}  ->  {'without else' if after == before else after}", changed)


def _first_lines(statement: ast.AST) -> str:
    """A statement without its body."""
    text = ast.unparse(statement)
    return text.split("\n")[0] if hasattr(statement, "body") else text


def _sites(tree: ast.Module, names: set[str]) -> Iterator[tuple[ast.stmt, object]]:
    """Each change as the statement it is in and a function that makes it."""
    for top in tree.body:
        named = {top.name} if isinstance(top, ast.FunctionDef | ast.ClassDef) else _assigned(top)
        for statement, holder, index in _statements(top, tree.body):
            inner = {node.name for node in _functions_over(tree, statement)}
            if names and not (named | inner) & names:
                continue
            if _is_docstring(statement):
                continue
            yield from _changes_of(statement, holder, index)


def _assigned(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _functions_over(tree: ast.Module, statement: ast.stmt) -> list[ast.FunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and any(x is statement for x in ast.walk(n))]


def _statements(node: ast.stmt, holder: list[ast.stmt]) -> Iterator[tuple[ast.stmt, list[ast.stmt], int]]:
    """A statement and all within it, with the list that holds each."""
    yield node, holder, holder.index(node)
    for field in ("body", "orelse", "handlers", "finalbody"):
        for inner in getattr(node, field, []):
            if isinstance(inner, ast.stmt):
                yield from _statements(inner, getattr(node, field))
            else:
                for statement in inner.body:
                    yield from _statements(statement, inner.body)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _changes_of(statement: ast.stmt, holder: list[ast.stmt], index: int) -> Iterator[tuple[ast.stmt, object]]:
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
        return
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr | ast.Raise | ast.Continue | ast.Break):
        yield statement, lambda: _put(holder, index, ast.Pass())
    if isinstance(statement, ast.Return) and statement.value is not None:
        yield statement, lambda: _put(holder, index, ast.Return(ast.Constant(None)))
    if isinstance(statement, ast.If):
        for value in (True, False):
            yield statement, lambda value=value: setattr(statement, "test", ast.Constant(value))
        if statement.orelse:
            yield statement, lambda: _put(holder, index, ast.If(statement.test, statement.body, []))
    for parent, field, position, node in _expressions(statement):
        for changed in _changed(node):
            yield statement, lambda p=parent, f=field, i=position, c=changed: _set(p, f, i, c)


def _put(holder: list[ast.stmt], index: int, statement: ast.stmt) -> ast.stmt:
    holder[index] = statement
    return statement


def _set(parent: ast.AST, field: str, position: int | None, node: object) -> None:
    if position is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[position] = node


def _expressions(statement: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Every expression of a statement, those of statements within and those of messages left out."""
    for field, value in ast.iter_fields(statement):
        if field in ("annotation", "returns", "ctx"):
            continue
        for position, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.stmt | ast.JoinedStr | ast.ExceptHandler):
                continue
            is_wording = isinstance(node, ast.Call) and getattr(node.func, "id", "") in WORDING
            if not is_wording:
                yield statement, field, position, node
                yield from _expressions(node)


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """What an expression can be replaced by."""
    if isinstance(node, ast.Compare):
        for index, sign in enumerate(node.ops):
            for other in COMPARED[type(sign)]:
                yield ast.Compare(node.left, [*node.ops[:index], other(), *node.ops[index + 1 :]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        yield ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
        for index in range(len(node.values)):
            left = [value for place, value in enumerate(node.values) if place != index]
            yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield ast.Slice(None, node.upper)
        if node.upper is not None:
            yield ast.Slice(node.lower, None)
    elif isinstance(node, ast.Attribute | ast.Name):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        for other in MIRRORED.get(name, ()):
            yield (
                ast.Attribute(node.value, other, node.ctx)
                if isinstance(node, ast.Attribute)
                else ast.Name(other, node.ctx)
            )
    elif isinstance(node, ast.Constant):
        yield from _changed_constant(node.value)


def _changed_constant(value: object) -> Iterator[ast.Constant]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)
    elif isinstance(value, str) and value:
        yield ast.Constant(value[1:])
        yield ast.Constant(value + "~")
        kinds = value.split("|")
        if len(kinds) > 2:  # a pattern
            for index in range(len(kinds)):
                yield ast.Constant("|".join(kinds[:index] + kinds[index + 1 :]))


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
    for module in PARTS:
        source = (FOLDER / f"{module}.py").read_text(encoding="utf-8")
        if outcome(Mutant(module, 0, "none", source), options.tests) != "survived":
            sys.exit(f"the tests fail without any change of {module}.py: mend them first")
    results: dict[str, dict[str, object]] = {}
    for module in PARTS:
        chosen = [mutant for mutant in mutants(module) if options.only in mutant.change]
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
