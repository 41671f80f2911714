"""A Jinja environment that runs chat templates from strangers: no code, and bounded work.

A chat template comes with a downloaded model, so it is untrusted. Jinja's immutable sandbox keeps it from Python's internals.
Here, only the filters and methods that chat templates use are left, nothing is computed while a template is compiled, and
whatever can make much of little (loops, calls, repeated, joined and nested values, output) is taken off the ``Budget``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.visitor
from jinja2.sandbox import SecurityError

from grpo_zero.text.budget import CALL, budget, fresh_budget
from grpo_zero.text.template_filters import (
    JOINED,
    ROUNDS,
    WEIGHED,
    bounded_range,
    join,
    make_filters,
    raise_exception,
    replace,
    strftime_now,
    weighed,
)

MAX_OUTPUT_CHARS = 4_000_000
_MAX_BITS = 4096
_TEXT_METHODS = """
    strip lstrip rstrip split rsplit splitlines partition rpartition removeprefix removesuffix startswith endswith
    find rfind index rindex count replace join upper lower title capitalize casefold swapcase
    isdigit isnumeric isdecimal isalpha isalnum isspace isupper islower istitle isascii
"""
_METHODS: dict[type, set[str]] = {
    str: set(_TEXT_METHODS.split()),
    dict: {"items", "keys", "values", "get", "copy"},
    list: {"index", "count", "copy"},
    tuple: {"index", "count"},
    bytes: set(),
    int: set(),
    float: set(),
}
"""What a template may take from a value besides its items; others can make a short text huge."""


def make_environment() -> jinja2.Environment:
    """A sandbox with the settings, filters and functions that Hugging Face's templates expect."""
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
        optimized=False,
        finalize=weighed,
    )
    environment.filters = make_filters()
    environment.globals = {
        "range": bounded_range,
        "namespace": environment.globals["namespace"],
        "dict": environment.globals["dict"],
        "raise_exception": raise_exception,
        "strftime_now": strftime_now,
    }
    return environment


def render_bounded(template: jinja2.Template, variables: dict[str, Any]) -> str:
    """The output. Raises ``jinja2.TemplateError`` when it is over ``MAX_OUTPUT_CHARS``, or takes more than a ``Budget``."""
    pieces = []
    length = 0
    with fresh_budget():
        for piece in template.generate(variables):
            length += len(piece)
            if length > MAX_OUTPUT_CHARS:
                raise jinja2.TemplateRuntimeError(f"more than {MAX_OUTPUT_CHARS:,} characters of output")
            pieces.append(piece)
    return "".join(pieces)


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def _generate(self, source: jinja2.nodes.Template, *rest: Any, **options: Any) -> str:
        return super()._generate(_Bounding().visit(source), *rest, **options)

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        # Jinja's own would print as an empty text; a template that tries is not worth rendering.
        raise SecurityError(f"access to {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        # A format can pad a text to any length, and reaches attributes.
        if super().wrap_str_format(value) is not None:
            raise SecurityError("the format method of a text")
        return None

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        known = next((names for kind, names in _METHODS.items() if isinstance(obj, kind)), None)
        return (known is None or attr in known) and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, obj: Any, *arguments: Any, **options: Any) -> Any:
        work = budget()
        work.charge(CALL)
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str):
            work.charge(len(owner))
            if name == "join":
                return join(context, arguments[0], owner)
            if name == "replace":
                return replace(context, owner, *arguments)
        result = super().call(context, obj, *arguments, **options)
        if isinstance(owner, str) or isinstance(obj, jinja2.runtime.Macro) or obj is dict:
            work.weigh(result)
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, (str, bytes)):
            raise SecurityError("the % formatting of a text")
        if isinstance(left, int) and isinstance(right, int) and _bits(operator, left, right) > _MAX_BITS:
            raise SecurityError(f"a number made too large by {operator}")
        if operator in ("+", "*"):
            for value, other in ((left, right), (right, left)):
                if isinstance(value, (str, list, tuple)):
                    budget().weigh(value, times=max(0, other) if isinstance(other, int) else 1)
        return super().call_binop(context, operator, left, right)


def _bits(operator: str, left: int, right: int) -> int:
    """How long a sum, product or power of whole numbers gets at most."""
    if operator == "**":
        return left.bit_length() * abs(right)
    return left.bit_length() + right.bit_length()


class _Bounding(jinja2.visitor.NodeTransformer):
    """Puts our filters where a template loops, joins texts or writes down lists and dicts."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:
        if node.recursive:
            raise jinja2.TemplateSyntaxError("recursive loops are not for prompts", node.lineno)
        self.generic_visit(node)
        printed = sum(len(data.data) for data in node.find_all(jinja2.nodes.TemplateData))
        node.iter = _filtered(node.iter, ROUNDS, jinja2.nodes.Const(printed))
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _filtered(jinja2.nodes.List(node.nodes, lineno=node.lineno), JOINED)

    def visit_List(self, node: jinja2.nodes.List) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _filtered(node, WEIGHED)

    visit_Dict = visit_List

    def visit_Tuple(self, node: jinja2.nodes.Tuple) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _filtered(node, WEIGHED) if node.ctx == "load" else node


def _filtered(node: Any, name: str, *arguments: jinja2.nodes.Expr) -> jinja2.nodes.Filter:
    return jinja2.nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


class _GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's text for SFT masks; here it just prints it."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own declaration)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
