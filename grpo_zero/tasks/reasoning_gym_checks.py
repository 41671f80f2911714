"""What stands between a model's text and reasoning-gym's scorers: nothing is run, and no flaw of a scorer is paid.

Nine scorers hand the text to Python's ``eval``, directly or through sympy's parser, which runs calls of any built-in function.
Four give their full score to texts that are wrong. Seen in version 0.1.25.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Real
from typing import Any

MAX_CHARACTERS = 10_000
"""Of an answer: more than any data set's own, less than what makes a scorer slow."""
EVALUATED = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Scorers that call ``eval``."""
PARSED = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Scorers that call ``sympy.parse_expr``."""
_TRIGONOMETRIC = {
    before + name for before in ("", "a") for name in ("sin", "cos", "tan", "cot", "sinh", "cosh", "tanh")
}
FUNCTIONS = _TRIGONOMETRIC | {"sec", "csc", "exp", "log", "ln", "sqrt", "Abs", "abs", "erf"}
"""What a text for sympy may call. Not Integral: it would answer a question by asking it again."""
_LITERALS = (ast.Expression, ast.List, ast.Tuple, ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd)
_FORMULA = re.compile(r"[A-Za-z0-9_\s+\-*/^().,]*", re.ASCII)
_CALL = re.compile(r"([A-Za-z_]\w*|\))\s*\(", re.ASCII)
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]", re.ASCII)
_TOWER = re.compile(r"\*\*[\s(+-]*(?:\d{4}|[\w.]+[\s)]*\*\*)", re.ASCII)


def is_harmless(dataset: str, answer: str) -> bool:
    """Whether the data set's scorer may see the text."""
    if len(answer) > MAX_CHARACTERS:
        return False
    if dataset in EVALUATED:
        return _is_literal(answer)
    if dataset in PARSED:
        return _is_formula(answer)
    return True


def _is_literal(text: str) -> bool:
    """No Python, or lists of constants and names: nothing that calls."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return True  # eval will say the same
    except (ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, _LITERALS) for node in ast.walk(tree))


def _is_formula(text: str) -> bool:
    """Numbers, names, operators and calls of known functions; no attribute, no text, no power of a power."""
    if not _FORMULA.fullmatch(text) or "__" in text or _ATTRIBUTE.search(text) or _TOWER.search(text):
        return False
    return all(call[1] in FUNCTIONS for call in _CALL.finditer(text))


def _has_all_numbers(answer: str, row: Mapping[str, Any]) -> bool:
    """puzzle24's scorer asks for four numbers and 24, not for the given ones."""
    return sorted(map(int, re.findall(r"\d+", answer))) == sorted(row["metadata"]["numbers"])


def _is_near(answer: str, row: Mapping[str, Any]) -> bool:
    """coin_flip's scorer gives its full score to the beginning of the right number too: 0 for 0.6875."""
    difference = Fraction(answer.replace(",", "")) - Fraction(row["answer"].replace(",", ""))
    return abs(difference) <= Fraction(1, 10_000)


def _is_same(answer: str, row: Mapping[str, Any]) -> bool:
    """game_of_life_halting's scorer takes any text for true, "False" included."""
    return answer == row["answer"]


def _is_finite(answer: str, row: Mapping[str, Any]) -> bool:
    """complex_arithmetic's scorer finds nan near everything."""
    return not re.search("nan|inf", answer, re.IGNORECASE)


A_FULL_SCORE_NEEDS: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "coin_flip": _is_near,
    "complex_arithmetic": _is_finite,
    "game_of_life_halting": _is_same,
    "puzzle24": _has_all_numbers,
}
"""Besides the scorer's word, by data set."""


def checked(dataset: str, score: object, answer: str, row: Mapping[str, Any]) -> float:
    """The score as a number from 0 to 1; 0 for what is no number, and for a full score that is not deserved."""
    number = float(score) if isinstance(score, Real) else math.nan
    needs = A_FULL_SCORE_NEEDS.get(dataset)
    if math.isnan(number) or (number >= 1 and needs is not None and not needs(answer, row)):
        return 0.0
    return min(1.0, max(0.0, number))
