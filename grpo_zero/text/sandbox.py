"""A Jinja environment that runs chat templates from strangers: no code, and bounded work.

A chat template comes with a downloaded model, so it is untrusted. Jinja's immutable sandbox keeps
it from Python's internals. On top of that we bound what is cheap to bound: the length of the
output, of repeated, added and padded strings, the size of whole numbers, and the rounds of all
``range`` loops together. That is against accidents and simple bombs: ``~``, ``replace`` and
nested loops over long literals are not bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

MAX_OUTPUT_CHARS = 4_000_000
MAX_RANGE_STEPS = 100_000
_MAX_REPEAT = 100_000
_MAX_BITS = 4096


def make_environment() -> jinja2.Environment:
    """A sandbox with the settings, filters and functions that Hugging Face's templates expect."""
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    environment.filters = {**environment.filters, "tojson": _to_json}
    for name in ("center", "indent", "format", "wordwrap"):  # they can make a short text huge
        environment.filters.pop(name, None)
    environment.globals = {
        "range": _budgeted_range(),
        "namespace": environment.globals["namespace"],
        "dict": environment.globals["dict"],
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    return environment


def render_bounded(template: jinja2.Template, variables: dict[str, Any]) -> str:
    """The output. Raises ``jinja2.TemplateError`` when it is over ``MAX_OUTPUT_CHARS``."""
    pieces = []
    length = 0
    for piece in template.generate({**variables, "range": _budgeted_range()}):
        length += len(piece)
        if length > MAX_OUTPUT_CHARS:
            raise jinja2.TemplateRuntimeError(f"more than {MAX_OUTPUT_CHARS:,} characters of output")
        pieces.append(piece)
    return "".join(pieces)


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        # Jinja's own would print as an empty text; a template that tries is not worth rendering.
        raise jinja2.sandbox.SecurityError(f"access to {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        # A format can pad a text to any length, and reaches attributes.
        if super().wrap_str_format(value) is not None:
            raise jinja2.sandbox.SecurityError("the format method of a text")
        return None

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        can_pad = attr in {"center", "ljust", "rjust", "zfill", "expandtabs"}
        return not (isinstance(obj, str) and can_pad) and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, (str, bytes)):
            raise jinja2.sandbox.SecurityError("the % formatting of a text")
        if _result_size(operator, left, right) > 1:
            raise jinja2.sandbox.SecurityError(f"a value made too large by {operator}")
        return super().call_binop(context, operator, left, right)


def _result_size(operator: str, left: Any, right: Any) -> float:
    """How large a sum, product or power gets, as a share of what is allowed."""
    if isinstance(left, int) and isinstance(right, int):
        if operator == "**":
            return left.bit_length() * abs(right) / _MAX_BITS
        return (left.bit_length() + right.bit_length()) / _MAX_BITS
    if operator == "+" and isinstance(left, str) and isinstance(right, str):
        return (len(left) + len(right)) / MAX_OUTPUT_CHARS
    if operator == "*":
        for value, count in ((left, right), (right, left)):
            if isinstance(value, (str, list, tuple)) and isinstance(count, int):
                return len(value) * count / _MAX_REPEAT
    return 0.0


class _GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's text for SFT masks; here it just prints it."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own declaration)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _budgeted_range() -> Callable[..., Iterator[int]]:
    left = MAX_RANGE_STEPS

    def bounded(*arguments: int) -> Iterator[int]:
        nonlocal left
        left -= len(steps := range(*arguments))
        if left < 0:
            raise jinja2.sandbox.SecurityError(f"more than {MAX_RANGE_STEPS:,} loop rounds")
        return iter(steps)

    return bounded


def _to_json(value: Any, **options: Any) -> str:
    """Like Hugging Face's filter, not Jinja's: no HTML escapes, no ASCII escapes."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(date_format: str) -> str:
    return datetime.now().strftime(date_format)
