"""The parser, the tags and the Countdown verifier against slow, obvious twins of another make."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.tasks.countdown import CountdownTask, wrong_because
from grpo_zero.tasks.expressions import MAX_CHARACTERS, ExpressionError, read_expression
from grpo_zero.tasks.tags import END_MARKERS, TAGS, has_exact_form, last_answer

ANY = st.text(st.characters(exclude_categories=()))
"""Every code point, lone surrogates too."""
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
NUMBERS = ["0", "1", "3", "7", "12", "99", "100", "999999999999"]
TOKENS = [
    *NUMBERS,
    *"+-*/()+-*/()",
    "**",
    "//",
    "05",
    "00",
    "1234567890123",
    "×",
    "÷",
    "−",
    "·",
    " ",
    "\n",
    "=",
    "x",
    "1.5",
    "²",
    "٣",
]


def by_python(text: str) -> tuple[Fraction, list[int]] | None:
    """Value and numbers by Python's own parser, with all that our grammar lacks refused; None for no expression."""
    for ours, python in (("×", "*"), ("·", "*"), ("÷", "/"), ("−", "-")):
        text = text.replace(ours, python)
    numbers = re.findall(r"\d+", text)
    if re.search(r"[^0-9+\-*/()\s]|\*\*|//", text) or any((n != "0" and n[0] == "0") or len(n) > 12 for n in numbers):
        return None
    try:
        tree = ast.parse(" ".join(text.split()), mode="eval")
        return value_of(tree.body), [int(number) for number in numbers]
    except (SyntaxError, ZeroDivisionError, TypeError):
        return None


def value_of(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value_of(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](value_of(node.left), value_of(node.right))
    raise TypeError(f"no part of our grammar: {node}")


EXPRESSIONS = st.recursive(
    st.sampled_from(NUMBERS),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", " + ", "\n-", "×", "÷"]), inner).map("".join)
        | inner.map(lambda text: f"({text})")
        | inner.map(lambda text: f"-{text}")
    ),
    max_leaves=8,
)


@st.composite
def nearly_right(draw: st.DrawFn) -> str:
    """An expression with a few characters put in, taken out or doubled."""
    text = draw(EXPRESSIONS)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", *TOKENS])) + text[at + draw(st.integers(0, 1)) :]
    return text


@given(nearly_right() | st.lists(st.sampled_from(TOKENS), max_size=12).map("".join))
def test_expressions_are_read_as_python_reads_them(text: str) -> None:
    expected = by_python(text)
    try:
        found = read_expression(text)
    except ExpressionError as error:
        reason = str(error)
    else:
        assert expected == (found.value, list(found.numbers))
        return
    assert expected is None, reason
    assert reason
    assert "\n" not in reason
    assert len(reason) < 80


@given(ANY)
def test_any_text_is_an_expression_or_a_reason(text: str) -> None:
    reason = by_reason(text)
    assert len(reason) < 120
    if not reason:
        assert read_expression(text).numbers


@given(st.integers(MAX_CHARACTERS - 3, MAX_CHARACTERS + 3))
def test_the_longest_expression(length: int) -> None:
    text = "-" * (length - 1) + "1"
    if length <= MAX_CHARACTERS:
        assert read_expression(text).value == (-1) ** (length - 1)
    else:
        assert by_reason(text) == f"longer than {MAX_CHARACTERS} characters"


def by_reason(text: str) -> str:
    try:
        read_expression(text)
    except ExpressionError as error:
        return str(error)
    return ""


PIECES = st.lists(
    st.sampled_from([*TAGS, *TAGS, *END_MARKERS, " ", "\n", "<", "think>", "</", "1+2", "a"]) | st.text(max_size=2),
    max_size=14,
)
COMPLETIONS = PIECES.map("".join) | st.tuples(PIECES, PIECES).map(
    lambda pair: f"<think>{''.join(pair[0])}</think>\n<answer>{''.join(pair[1])}</answer>"
)
UNTAGGED = "(?:(?!</?think>|</?answer>).)*"
FORM = re.compile(
    rf"\s*<think>{UNTAGGED}</think>\s*<answer>{UNTAGGED}</answer>(?:\s|{'|'.join(map(re.escape, END_MARKERS))})*",
    re.DOTALL,
)
BLOCK = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


@given(
    COMPLETIONS,
    st.sampled_from(["", "<think>", "<think>\n", "Well.\n<think>", "<think></think>", "no tag", "<think>a<think>b"]),
)
def test_the_form_is_that_of_one_pattern(completion: str, response_start: str) -> None:
    _, opened, reasoning = response_start.rpartition("<think>")
    assert has_exact_form(completion, response_start) is bool(
        FORM.fullmatch(opened + reasoning * bool(opened) + completion)
    )


@given(COMPLETIONS)
def test_the_answer_is_the_last_whole_block(completion: str) -> None:
    after = completion[completion.find("</think>") + 8 :] if "</think>" in completion else completion
    assert last_answer(completion) == (BLOCK.findall(after) or [None])[-1]


@given(ANY | COMPLETIONS)
def test_tags_of_any_text(text: str) -> None:
    assert has_exact_form(text) in (True, False)
    answer = last_answer(text)
    assert answer is None or f"<answer>{answer}</answer>" in text


@st.composite
def solved(draw: st.DrawFn) -> tuple[list[int], str, Fraction]:
    """Numbers, an expression that uses each once, and its value."""
    nums = draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    parts = [(str(number), Fraction(number)) for number in draw(st.permutations(nums))]
    while len(parts) > 1:
        (left, a), (right, b), *rest = parts
        sign = draw(st.sampled_from("+-*/" if b else "+-*"))
        value = {"+": a + b, "-": a - b, "*": a * b}.get(sign) if sign != "/" else a / b
        parts = [*rest, (f"({left} {sign} {right})", value)]
    return nums, *parts[0]


@given(solved(), st.integers(0, 5), st.integers(1, 20))
def test_an_answer_is_right_exactly_when_numbers_and_value_are(
    case: tuple[list[int], str, Fraction], index: int, other: int
) -> None:
    nums, expression, value = case
    assert wrong_because(expression, nums, value) == ""
    assert wrong_because(expression, nums, value + 1) == f"equals {value}, not {value + 1}"
    changed = list(nums)
    changed[index % len(nums)] = other
    expected = Counter(changed) == Counter(nums)
    assert (wrong_because(expression, changed, value) == "") is expected
    assert wrong_because(expression, [*nums, other], value) != ""
    assert wrong_because(expression, nums[:-1], value) != ""


@given(solved())
def test_what_is_right_is_paid_in_full(case: tuple[list[int], str, Fraction]) -> None:
    nums, expression, value = case
    if value.denominator != 1 or value < 1:
        return
    task = CountdownTask()
    verdict = task.verify(
        task.problem({"nums": nums, "target": int(value)}), f"so</think>\n<answer>{expression}</answer>"
    )
    assert (verdict.reward, verdict.correct, verdict.reason) == (1.1, True, "right")
