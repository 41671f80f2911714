"""The parser: what it reads, what it refuses and why, and that it stays quick."""

import contextlib
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.tasks.expressions import MAX_CHARACTERS, ExpressionError, read_expression


@pytest.mark.parametrize(
    ("text", "value", "numbers"),
    [
        ("7", 7, (7,)),
        ("1+2*3", 7, (1, 2, 3)),
        ("(1+2)*3", 9, (1, 2, 3)),
        ("10-4-3", 3, (10, 4, 3)),
        ("24/4/3", 2, (24, 4, 3)),
        ("8/(3-8/3)", 24, (8, 3, 8, 3)),
        ("1/3", Fraction(1, 3), (1, 3)),
        ("-5+8", 3, (5, 8)),
        ("8--5", 13, (8, 5)),
        ("2*-3", -6, (2, 3)),
        ("--5", 5, (5,)),
        ("-(2+3)*4", -20, (2, 3, 4)),
        ("0*5", 0, (0, 5)),
        ("\n ( 1 + 2 )\n* 3 \t", 9, (1, 2, 3)),
        ("6 \u00d7 4 \u00f7 2 \u2212 1", 11, (6, 4, 2, 1)),
        ("2\u00b73", 6, (2, 3)),
        ("(" * 400 + "1" + ")" * 400, 1, (1,)),
        (" " * 1000 + "1", 1, (1,)),
        ("1" + " " * 1000, 1, (1,)),
        ("8/1", 8, (8, 1)),
        ("8/-1", -8, (8, 1)),
        ("999999999999", 999999999999, (999999999999,)),
    ],
)
def test_reads(text: str, value: Fraction, numbers: tuple[int, ...]) -> None:
    expression = read_expression(text)
    assert (expression.value, expression.numbers) == (value, numbers)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("2**3", r"operator '\*\*' not allowed"),
        ("7//2", "operator '//' not allowed"),
        ("2\u00d7\u00d73", "not allowed"),
        ("2 * * 3", "where a number should be"),
        ("1+2=3", "'=' not allowed"),
        ("1.5+2", "'.' not allowed"),
        ("1_2+3", "'_' not allowed"),
        ("3+4,", "',' not allowed"),
        ("1e2", "character 'e' not allowed"),
        ("none", "word 'none' not allowed"),
        ("05+3", "leading zero"),
        ("2(3+4)", r"no operator before '\('"),
        ("(1)(2)", r"no operator before '\('"),
        ("1 2", "no operator before '2'"),
        ("+5", "where a number should be"),
        ("5+", "ends where"),
        ("()", "where a number should be"),
        ("(1+2", r"'\(' without '\)'"),
        ("1+2)", r"'\)' without '\('"),
        ("5/(3-3)", "division by zero"),
        (r"\boxed{1+2}", "not allowed"),
        ("1~2", "character '~' not allowed"),
        ("0/0", "division by zero"),
        ("3\u00b2", "not allowed"),
        ("\u0663+1", "not allowed"),
        ("\ud800", "not allowed"),
        ("1234567890123", "more than 12 digits"),
        ("1+" * MAX_CHARACTERS + "1", "longer than"),
    ],
)
def test_refuses_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        read_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9",
        "(" * 20_000,
        "-" * 999 + "1",
        "1/" * 499 + "1",
        "9" * 10**6,
        "/".join(["999999999989"] * 76),
    ],
    ids=["powers", "deep", "minus", "chain", "digits", "fractions"],
)
def test_hostile_text_is_quick(text: str) -> None:
    start = time.perf_counter()
    with contextlib.suppress(ExpressionError):
        read_expression(text)
    assert time.perf_counter() - start < 0.25  # milliseconds, but for a busy machine


Tree = tuple[str, Fraction | None]
"""An expression's text and its value; None where it divides by zero."""


def joined(parts: tuple[Tree, str, Tree]) -> Tree:
    (left, a), sign, (right, b) = parts
    text = f"({left}) {sign} ({right})"
    if a is None or b is None or (sign == "/" and b == 0):
        return text, None
    return text, {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[sign](b)


def negated(tree: Tree) -> Tree:
    text, value = tree
    return f"-({text})", None if value is None else -value


TREES = st.recursive(
    st.integers(0, 99).map(lambda number: (str(number), Fraction(number))),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(joined) | inner.map(negated),
    max_leaves=12,
)


@given(TREES)
def test_computes_well_formed_text_exactly(tree: Tree) -> None:
    text, value = tree
    if value is None:
        with pytest.raises(ExpressionError, match="division by zero"):
            read_expression(text)
    else:
        assert read_expression(text).value == value
