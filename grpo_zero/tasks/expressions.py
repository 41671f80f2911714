"""Arithmetic as a person would type it, read by our own parser and computed in exact rationals.

Model output never reaches a Python evaluator. The parser keeps its own stacks, so no depth of
parentheses can exhaust Python's, and refuses long inputs, so any string costs milliseconds at most.

Grammar, white space allowed between tokens:

    sum     = product { ("+" | "-") product }
    product = factor { ("*" | "/") factor }
    factor  = number | "(" sum ")" | "-" factor
    number  = "0" | ASCII digits without a leading zero

U+00D7 and U+00B7 read as ``*``, U+00F7 as ``/``, U+2212 as ``-``. All else is refused: powers,
floor division, unary plus, decimals, ``=``, implied multiplication, words, other digits, LaTeX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 1000
"""Longest expression read; an answer with six numbers has well under a hundred characters."""
MAX_DIGITS = 12
"""Longest number read; also bounds the size of every intermediate result."""

_ASCII_OPERATORS = str.maketrans({"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-"})
_TOKEN = re.compile(r"[0-9]+|[A-Za-z]+|\*\*|//|\s+|.", re.DOTALL)
_NEGATE = "negate"
_BINDING = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, _NEGATE: 3}
"""How tightly an entry of the operator stack binds; an open parenthesis stops every reduction."""


class ExpressionError(ValueError):
    """The text is not an expression of the grammar; the message is the reason, in a few words."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that could be read and computed."""

    value: Fraction
    """Its exact value."""
    numbers: tuple[int, ...]
    """The numbers written in it, in order of appearance, repeats included."""


def read_expression(text: str) -> Expression:
    """Parse and compute ``text``.

    Raises ``ExpressionError`` with the reason when it does not follow the grammar, divides by zero,
    has more than ``MAX_CHARACTERS`` characters or a number of more than ``MAX_DIGITS`` digits.
    """
    text = text.strip()
    if not text:
        raise ExpressionError("empty expression")
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"longer than {MAX_CHARACTERS} characters")
    tokens = _tokens(text)
    numbers = tuple(int(token) for token in tokens if token.isdigit())
    return Expression(_compute(tokens), numbers)


def _tokens(text: str) -> list[str]:
    """Numbers, operators and parentheses of ``text``, operators in ASCII."""
    tokens = []
    for token in _TOKEN.findall(text.translate(_ASCII_OPERATORS)):
        if token.isspace():
            continue
        if "0" <= token[0] <= "9":
            if len(token) > MAX_DIGITS:
                raise ExpressionError(f"number of more than {MAX_DIGITS} digits")
            if token[0] == "0" and len(token) > 1:
                raise ExpressionError(f"number {token} has a leading zero")
        elif token in ("**", "//"):
            raise ExpressionError(f"operator {token!r} not allowed")
        elif token not in "+-*/()":
            # A whole word is quoted whole, up to a length that a person reads.
            raise ExpressionError(f"{'word' if len(token) > 1 else 'character'} {token[:20]!r} not allowed")
        tokens.append(token)
    return tokens


def _compute(tokens: list[str]) -> Fraction:
    """Operator-precedence evaluation with two stacks: values, and operators that still wait."""
    values: list[Fraction] = []
    waiting: list[str] = []
    wants_operand = True
    for token in tokens:
        if wants_operand:
            if token == "(":
                waiting.append(token)
            elif token == "-":
                waiting.append(_NEGATE)
            elif token.isdigit():
                values.append(Fraction(int(token)))
                wants_operand = False
            else:
                raise ExpressionError(f"{token!r} where a number should be")
        elif token == ")":
            _reduce(values, waiting, binding=1)
            if not waiting:
                raise ExpressionError("')' without '('")
            waiting.pop()
        elif token in "+-*/":
            _reduce(values, waiting, binding=_BINDING[token])
            waiting.append(token)
            wants_operand = True
        else:
            raise ExpressionError(f"no operator before {token!r}")
    if wants_operand:
        raise ExpressionError("ends where a number should be")
    _reduce(values, waiting, binding=1)
    if waiting:
        raise ExpressionError("'(' without ')'")
    return values[0]


def _reduce(values: list[Fraction], waiting: list[str], binding: int) -> None:
    """Apply the waiting operators, newest first, that bind at least as tightly as ``binding``."""
    while waiting and _BINDING[waiting[-1]] >= binding:
        operator = waiting.pop()
        right = values.pop()
        if operator == _NEGATE:
            values.append(-right)
        elif operator == "+":
            values.append(values.pop() + right)
        elif operator == "-":
            values.append(values.pop() - right)
        elif operator == "*":
            values.append(values.pop() * right)
        elif right == 0:
            raise ExpressionError("division by zero")
        else:
            values.append(values.pop() / right)
