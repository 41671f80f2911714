"""Any text as a chat template: it renders or is refused in one sentence, soon, without files, attributes or floods of memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.errors import UserError
from grpo_zero.text.budget import MAX_WORK, Budget
from grpo_zero.text.chat import ChatTemplate

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
ROOM = 2 * 2**30
"""Address space that a template may take beyond what the process has."""
MOST_SECONDS = 15.0
"""The limit of one rendering, and time for a busy machine."""
DOUBLE = "{% set n = namespace(x=START) %}{% for i in range(60) %}{% set n.x = STEP %}{% endfor %}"
BOMBS = {
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "range as a list": "{{ range(10**9) | list }}",
    "negative range": "{% for i in range(0, -10**9, -1) %}{% endfor %}",
    "huge range": "{{ range(2**4000) }}",
    "nested loops over a text": "{% for a in 'x' * 100000 %}{% for b in 'x' * 100000 %}{% endfor %}{% endfor %}",
    "loops within loops": "{% for a in 'xxxxxxxxxx' %}" * 12 + "{% endfor %}" * 12,
    "loops over messages": "{% for m in messages %}" * 19 + "x" * 1000 + "{% endfor %}" * 19,
    "recursive loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "macros": "".join(
        f"{{% macro m{i} () %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}" for i in range(40, 0, -1)
    )
    + "{% macro m0() %}x{% endmacro %}{{ m40() }}",
    "macros that call themselves": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "much text in a macro": "{% macro m() %}{% for i in 'x' * 100000 %}"
    + "x" * 100000
    + "{% endfor %}{% endmacro %}{{ m() }}",
    "much text in a block": "{% set x %}{% for i in 'x' * 100000 %}" + "x" * 100000 + "{% endfor %}{% endset %}{{ x }}",
    "doubled by ~": DOUBLE.replace("START", "'a'").replace("STEP", "n.x ~ n.x"),
    "doubled by +": DOUBLE.replace("START", "'a'").replace("STEP", "n.x + n.x"),
    "doubled list": DOUBLE.replace("START", "[1]").replace("STEP", "n.x + n.x"),
    "doubled by join": DOUBLE.replace("START", "'a'").replace("STEP", "[n.x, n.x] | join"),
    "doubled by the join of a text": DOUBLE.replace("START", "'a'").replace("STEP", "n.x.join(['', '', ''])"),
    "nested lists": DOUBLE.replace("START", "'a'").replace("STEP", "[n.x, n.x]") + "{{ n.x }}",
    "nested dicts": DOUBLE.replace("START", "'a'").replace("STEP", "{'a': n.x, 'b': n.x}") + "{{ n.x | tojson }}",
    "nested by dict()": DOUBLE.replace("START", "'a'").replace("STEP", "dict(a=n.x, b=n.x)") + "{{ n.x | string }}",
    "nested namespaces": DOUBLE.replace("START", "'a'").replace("STEP", "namespace(a=n.x, b=n.x)") + "{{ n.x }}",
    "nested tuples as keys": DOUBLE.replace("START", "'a'").replace("STEP", "(n.x, n.x)") + "{{ {n.x: 1} }}",
    "compared lists": DOUBLE.replace("START", "'a'").replace("STEP", "[n.x, n.x]") + "{{ n.x == [n.x, 1] }}",
    "joined with a long text": "{{ (['a'] * 100000) | join('x' * 100000) }}",
    "replaced by a long text": "{{ 'x' * 100000 | replace('x', 'y' * 100000) }}{{ ('x' * 99999) | replace('', 'y' * 99999) }}",
    "replace of a text": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "escaped again and again": DOUBLE.replace("START", "'&'").replace("STEP", "(n.x ~ '') | e"),
    "sorted heavy list": "{% set s = 'x' * 1000000 %}{{ ([s] * 1000000) | sort | length }}",
    "upper of a heavy list": "{% set s = 'x' * 1000000 %}{{ ([s] * 1000) | upper }}",
    "searched": "{% set s = 'x' * 1000000 %}{% for i in 'x' * 900000 %}{% if s ~ '' == s ~ i %}{% endif %}{% endfor %}",
    "compared": "{% set s = 'x' * 900000 %}{% set t = s[1:] ~ 'x' %}{% for i in 'x' * 999 %}{% if s==t %}{% endif %}{% endfor %}",
    "selected": "{% set s = 'x' * 9000000 %}{{ (['y'] * 700000) | select('in', s) | list }}",
    "indent": "{{ [[1]] | tojson(indent=10**9) }}",
    "indent by a text": "{{ [[1]] | tojson(indent='x' * 10**6) }}",
    "separators": "{{ ([1] * 10**6) | tojson(separators=('x' * 10**5, 'y')) }}",
    "date": "{{ strftime_now('%c' * 10**6) }}",
    "date of any width": "{{ strftime_now('%999999999Y' * 50) }}",
    "number": "{{ 2 ** (10**9) }}",
    "digits": "{{ 10 ** 1000 * 10 ** 1000 }}",
    "many digits": "{{ " + "9" * 5000 + " }}",
    "infinite": "{{ 1e999 }}",
    "padded": "{{ 'a'.ljust(10**9) }}",
    "padded bytes": "{{ 'a'.encode().ljust(10**9) }}",
    "bytes": "{{ (1).to_bytes(10**9) }}",
    "translated": "{{ ('x' * 10**5).translate({120: 'y' * 10**5}) }}",
    "rounded": "{{ 1 | round(-10**9) }}",
    "batches": "{{ [1] | batch(10**9, 0) | list }}",
    "slices": "{{ [1] | slice(10**9) | list }}",
    "sum": "{{ ([[1] * 1000] * 1000) | sum(start=[]) }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "brackets": "{{ " + "[" * 90 + "]" * 90 + " }}",
    "minus signs": "{{ " + "-" * 20000 + "1 }}",
    "nested ifs": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "nested loops": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "long": "x" * 200_001,
    "a list as a message": DOUBLE.replace("START", "'a'").replace("STEP", "[n.x, n.x]") + "{{ raise_exception(n.x) }}",
}
MAY_RENDER = {
    "compared",
    "escaped again and again",
    "huge range",
    "brackets",
    "nested ifs",
    "replaced by a long text",
    "date of any width",
    "infinite",
    "minus signs",
}
REACHES = [
    *(
        "{{ ''.__class__ }}",
        "{{ messages.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ messages['__class__'] }}",
        "{{ ''|attr('__class__') }}",
    ),
    *(
        "{{ messages|map(attribute='__class__')|list }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ range.__globals__ }}",
    ),
    *(
        "{{ self._TemplateReference__context }}",
        "{{ strftime_now.__globals__ }}",
        "{{ cycler }}{{ lipsum.__globals__ }}",
    ),
    *(
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{% extends '/etc/passwd' %}",
        "{% from 'os' import path %}",
    ),
    *(
        "{{ messages.append(1) }}",
        "{{ messages[0].update(a=1) }}",
        "{{ messages[0].pop('role') }}",
        "{{ messages.clear() }}",
    ),
    *(
        "{{ ''.format }}",
        "{{ '{0.x}'.format(1) }}",
        "{{ '%s' % 1 }}",
        "{{ ''.format_map({}) }}",
        "{{ ''.encode() }}",
        "{{ (1).real }}",
    ),
    *(
        "{{ raise_exception.__closure__ }}",
        "{% macro m() %}{% endmacro %}{{ m._func }}",
        "{{ loop }}{% for i in [1] %}{{ loop._iterable }}{% endfor %}",
    ),
    *(
        "{{ ''.translate({}) }}",
        "{{ (x for x in [1]).gi_frame }}",
        "{{ (messages|map('upper')).gi_frame }}",
        "{{ dict.mro() }}",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    if Path("/proc/self/statm").is_file():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def rendered(source: str) -> str | None:
    """The prompt, None when it was refused in one sentence; soon in any case."""
    start = time.monotonic()
    try:
        text = ChatTemplate(source, origin="HERE").render(MESSAGES)
    except UserError as error:
        text, message = None, str(error)
        assert message.startswith("The chat template of HERE "), message
        assert len(message) < 1000
    assert time.monotonic() - start < MOST_SECONDS
    return text


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    assert (rendered(BOMBS[name]) is None) or name in MAY_RENDER


@pytest.mark.parametrize("source", REACHES)
def test_nothing_but_the_messages_is_in_reach(source: str) -> None:
    assert rendered(source) in (None, "")


ATOMS = "messages messages[0] n.x i 1 -1 'a' '' true none 10**9 2**70 loop x m 1.5 {} []"
OPERATORS = "+ * ~ - / // % ** == < in and is"
FILTERS = (
    "list join tojson length string upper first last sort reverse items trim replace('a','bb') join('ab') map('upper') "
    "map(attribute='role') select selectattr('role') default(1) int unique dictsort escape"
)
ENDINGS = "[0] [::2] .role .split('a') .join('ab') .items() .replace('a','bb') () .x ['content'] .__class__ .strip"


def one_of(words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words.split())


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, one_of(OPERATORS), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, one_of(FILTERS)).map(lambda t: f"({t[0]} | {t[1]})"),
        st.tuples(inner, one_of(ENDINGS)).map("".join),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} if {t[1]} else 2)"),
        st.tuples(st.sampled_from(["{'k': %s}", "range(%s)", "namespace(x=%s)", "(not %s)"]), inner).map(
            lambda t: t[0] % t[1]
        ),
    )


EXPRESSIONS = st.recursive(one_of(ATOMS), larger, max_leaves=6)
BLOCKS = (
    "{% macro m(x) %}BODY{% endmacro %}{{ m(1) }}",
    "{% set x %}BODY{% endset %}",
    "{% generation %}BODY{% endgeneration %}",
    "{% filter upper %}BODY{% endfilter %}",
    "{% for i in E %}BODY{% endfor %}",
    "{% for i in E if i %}BODY{% else %}BODY{% endfor %}",
    "{% if E %}BODY{% else %}BODY{% endif %}",
)
STATEMENTS = st.recursive(
    EXPRESSIONS.map(lambda e: f"{{{{ {e} }}}}")
    | EXPRESSIONS.map(lambda e: f"{{% set n.x = {e} %}}")
    | st.sampled_from(["text", "\n", "{% break %}"]),
    lambda inner: (
        st.tuples(st.sampled_from(BLOCKS), EXPRESSIONS, inner).map(
            lambda t: t[0].replace("in E", f"in {t[1]}").replace("if E", f"if {t[1]}").replace("BODY", t[2])
        )
        | st.tuples(inner, inner).map("".join)
    ),
    max_leaves=5,
)
PIECES = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "for",
    "in",
    "endfor",
    "if",
    "endif",
    "macro",
    "messages",
    "(",
    ")",
    "[",
    "]",
    "'",
    "|",
    "~",
    ".",
    " ",
    "1",
    "block",
    "\0",
    "\ud800",
]


@given(STATEMENTS)
def test_templates_of_every_part(body: str) -> None:
    rendered("{% set n = namespace(x='a') %}" + body)


@given(st.text(st.characters(exclude_categories=())) | st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_any_text(source: str) -> None:
    rendered(source)


def test_a_long_chat_takes_a_small_part_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []
    charge = Budget.charge

    def watched(self: Budget, units: float) -> None:
        charge(self, units)
        spent.append(MAX_WORK - self.left)

    monkeypatch.setattr(Budget, "charge", watched)
    source = (
        "{% for m in messages %}{{ '<|' + m['role'] ~ m['content'] | trim ~ '\\n' }}{% endfor %}{{ messages | tojson }}"
    )
    ChatTemplate(source).render([{"role": "user", "content": "x" * 1000}] * 50)
    assert max(spent) < MAX_WORK / 30
