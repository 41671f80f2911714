"""Numbers as people write them are read exactly, and any text is read without an error."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.tasks.final_answer import lenient_answer, strict_answer
from grpo_zero.tasks.numbers import MAX_DIGITS, first_number, last_number, numbers

ANY = st.text(st.characters(exclude_categories=()))
WHOLE = st.integers(0, 10**12)
STYLES = {
    "plain": lambda n: str(n),
    "commas": lambda n: f"{n:,}",
    "LaTeX commas": lambda n: f"{n:,}".replace(",", "{,}"),
    "currency": lambda n: f"${n}",
    "escaped currency": lambda n: f"\\${n:,}",
    "cents": lambda n: f"${n}.00",
    "bold": lambda n: f"**{n}**",
    "percent": lambda n: f"{n}%",
    "sentence": lambda n: f"{n}.",
    "fraction": lambda n: f"{2 * n}/2",
    "LaTeX fraction": lambda n: f"\\frac{{{3 * n}}}{{3}}",
    "mathematics": lambda n: f"${n}$",
}
STYLED = st.tuples(WHOLE, st.sampled_from(sorted(STYLES))).map(lambda pair: (pair[0], STYLES[pair[1]](pair[0])))
WORDS = st.sampled_from(["so", "She has", "eggs and", "is\n", "(in all)", "a - b", "x =", "####", ":"])


@given(STYLED, st.booleans())
def test_a_number_in_any_style(styled: tuple[int, str], negative: bool) -> None:
    value, text = styled
    value, text = (-value, f"-{text}") if negative and text[0] not in "*" else (value, text)
    for found in (first_number(text), last_number(f"so it is {text}")):
        assert found is not None
        assert found.value == value
    assert strict_answer(f"so\n#### {text}", "####") == value
    assert lenient_answer(f"so it is {text}", "####") == value
    assert lenient_answer(f"It is \\boxed{{{text}}}, not 7", "####") == value


@given(st.lists(st.tuples(WORDS, STYLED), max_size=8))
def test_every_number_in_order(parts: list[tuple[str, tuple[int, str]]]) -> None:
    text = " ".join(f"{words} {styled} ." for words, (_, styled) in parts)
    assert [found.value for found in numbers(text)] == [value for _, (value, _) in parts]


@given(ANY | st.text("0123456789.,/-$%*{}\\#fracboxed eE^\n²", max_size=60), ANY.filter(str.strip), st.booleans())
def test_any_text_and_any_mark(text: str, mark: str, finished: bool) -> None:
    for rule in (strict_answer, lenient_answer):
        for sign in ("####", mark):
            answer = rule(text, sign, finished)
            assert answer is None or isinstance(answer, Fraction)
    found = list(numbers(text))
    assert (first_number(text), last_number(text)) == ((found[0], found[-1]) if found else (None, None))
    assert all(each.value.denominator < 10 ** (2 * MAX_DIGITS) for each in found)


@given(st.integers(1, 3 * MAX_DIGITS))
def test_a_long_number_is_read_whole_or_not_at_all(length: int) -> None:
    found = list(numbers("7" * length))
    assert [each.value for each in found] == ([int("7" * length)] if length <= MAX_DIGITS else [])
