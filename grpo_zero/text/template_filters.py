"""What a chat template may apply and call: Jinja's filters and a few functions, each taking what it costs off the ``Budget``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import jinja2
import jinja2.filters
import jinja2.runtime
from jinja2.sandbox import SecurityError

from grpo_zero.text.budget import STEP, budget

ROUNDS, JOINED, WEIGHED = " rounds", " joined", " weighed"
"""Filters that the sandbox puts into templates; no template can write a name with a space."""
_MAX_INDENT = 16
_LISTS = ("list", "items", "reverse", "first", "last", "length", "count")
_TEXTS = ("trim", "upper", "lower", "capitalize", "title", "escape", "e", "forceescape", "safe", "string")
_NUMBERS = ("int", "float", "abs")
_ORDERS = ("sort", "dictsort", "unique")
_DEFAULTS = ("default", "d")
_ITERATED = ("map", "select", "reject", "selectattr", "rejectattr")


def make_filters() -> dict[str, Callable[..., Any]]:
    """The filters by name. All ask for the context, so that none runs while a template is compiled."""
    plain = jinja2.filters.FILTERS
    return {
        **{
            name: _bounded(plain[name], name)
            for name in (*_LISTS, *_TEXTS, *_NUMBERS, *_ORDERS, *_ITERATED, *_DEFAULTS)
        },
        "join": join,
        "replace": replace,
        "tojson": _to_json,
        ROUNDS: _rounds,
        JOINED: _joined,
        WEIGHED: weighed,
    }


def _bounded(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Jinja's filter ``plain``; what it takes whole and what it makes is weighed."""
    wants = getattr(getattr(plain, "jinja_pass_arg", None), "name", None)

    @jinja2.pass_context
    def bounded(context: jinja2.runtime.Context, value: Any, *arguments: Any, **options: Any) -> Any:
        work = budget()
        work.charge(STEP)
        if name in (*_TEXTS, *_NUMBERS, *_ORDERS):
            work.weigh(value)
        if name in _ITERATED:
            value = work.rounds(value)
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        result = plain(*([first[wants]] if wants else []), value, *arguments, **options)
        if isinstance(result, (str, list)) and name not in (*_DEFAULTS, "first", "last"):
            work.weigh(result)
        return result

    return bounded


@jinja2.pass_context
def _rounds(context: jinja2.runtime.Context, values: Any, printed: int) -> Iterator[Any]:
    """The values of a loop, whose body prints so many characters of the template itself."""
    return budget().rounds(values, printed)


@jinja2.pass_context
def weighed(context: jinja2.runtime.Context, value: Any) -> Any:
    """The value, once it is known to be of reasonable size."""
    budget().weigh(value)
    return value


@jinja2.pass_context
def _joined(context: jinja2.runtime.Context, values: list[Any]) -> str:
    budget().weigh(values)
    return "".join(map(str, values))


@jinja2.pass_context
def join(context: jinja2.runtime.Context, values: Any, d: Any = "", attribute: str | None = None) -> Any:
    """``d`` between the values."""
    work = budget()
    listed = list(work.rounds(values))
    work.weigh(listed)
    work.weigh(d)
    work.charge(len(str(d)) * len(listed))
    return jinja2.filters.FILTERS["join"](context.eval_ctx, listed, d, attribute)


@jinja2.pass_context
def replace(context: jinja2.runtime.Context, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    """``value`` with ``new`` for ``old``, everywhere or the first ``count`` times."""
    work = budget()
    work.weigh([value, old, new])
    text, old, new = str(value), str(old), str(new)
    work.charge(text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


@jinja2.pass_context
def _to_json(
    context: jinja2.runtime.Context,
    value: Any,
    indent: int | None = None,
    ensure_ascii: bool = False,
    sort_keys: bool = False,
    separators: tuple[str, str] | None = None,
) -> str:
    """Like Hugging Face's filter, not Jinja's: no HTML escapes, no ASCII escapes."""
    if indent is not None and not (isinstance(indent, int) and indent <= _MAX_INDENT):
        raise SecurityError(f"an indent that is no number up to {_MAX_INDENT}")
    if separators is not None and max(map(len, separators)) > _MAX_INDENT:
        raise SecurityError("long separators")
    work = budget()
    work.weigh(value)
    encoder = json.JSONEncoder(indent=indent, ensure_ascii=ensure_ascii, sort_keys=sort_keys, separators=separators)
    pieces = []
    for piece in encoder.iterencode(value):
        work.charge(len(piece))
        pieces.append(piece)
    return "".join(pieces)


def bounded_range(*arguments: int) -> Iterator[int]:
    """``range``, which costs its whole length at once."""
    if max(map(abs, arguments), default=0) > 10**9:
        raise SecurityError("a range of numbers above 10^9")
    steps = range(*arguments)
    budget().charge(STEP * len(steps))
    return iter(steps)


def raise_exception(message: object) -> None:
    """By which templates refuse messages. Raises ``jinja2.TemplateError``."""
    raise jinja2.TemplateError(message[:300] if isinstance(message, str) else f"a {type(message).__name__}")


def strftime_now(date_format: str) -> str:
    """Today's date."""
    if len(date_format) > 100:
        raise SecurityError("a long date format")
    return datetime.now().strftime(date_format)
