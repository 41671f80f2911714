"""Every small change of a Python source, one at a time, as ``mutants.py`` tries them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed source."""

    module: str
    line: int
    change: str
    """The statement before and after."""
    source: str


def mutants(path: Path, names: set[str]) -> Iterator[Mutant]:
    """Every single change of a source; where ``names`` are given, of those functions and constants alone."""
    source = path.read_text(encoding="utf-8")
    unchanged = ast.unparse(ast.parse(source))
    count = sum(1 for _ in _sites(ast.parse(source), names))
    for site in range(count):
        # A fresh tree each time, changed in one place.
        tree = ast.parse(source)
        statement, apply = next(s for index, s in enumerate(_sites(tree, names)) if index == site)
        before, line = _first_lines(statement), statement.lineno
        replaced = apply()
        after = _first_lines(statement if replaced is None else replaced)
        changed = ast.unparse(ast.fix_missing_locations(tree))
        if changed != unchanged:
            yield Mutant(path.stem, line, f"{before}  ->  {'without else' if after == before else after}", changed)


def _first_lines(statement: ast.AST) -> str:
    """A statement without its body."""
    text = ast.unparse(statement)
    return text.split("\n")[0] if hasattr(statement, "body") else text


def _sites(tree: ast.Module, names: set[str]) -> Iterator[tuple[ast.stmt, object]]:
    """Each change as the statement it is in and a function that makes it."""
    for top in tree.body:
        named = {top.name} if isinstance(top, ast.FunctionDef | ast.ClassDef) else _assigned(top)
        for statement, holder, index in _statements(top, tree.body):
            if names and not (named | _functions_over(top, statement)) & names:
                continue
            if _is_docstring(statement):
                continue
            yield from _changes_of(statement, holder, index)


def _assigned(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _functions_over(top: ast.stmt, statement: ast.stmt) -> set[str]:
    """Names of the functions within ``top`` that hold the statement."""
    functions = [node for node in ast.walk(top) if isinstance(node, ast.FunctionDef)]
    return {function.name for function in functions if any(node is statement for node in ast.walk(function))}


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
