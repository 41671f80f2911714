"""From YAML to frozen dataclasses: documented fields, checked types, errors that are sentences.

This file knows nothing of training; ``config/sections.py`` holds the schema.
"""

from __future__ import annotations

import dataclasses
import io
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from grpo_zero.errors import UserError, nearest

SectionT = TypeVar("SectionT")

MAX_YAML_BYTES = 200_000
"""Of a config file; the longest in use has a few thousand."""
_MAX_SHOWN = 200
"""Characters of a value in a message."""
_NO_FIT = object()
_TYPE_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_PLURAL_WORDS = {int: "whole numbers", float: "numbers", str: "texts"}


def option(
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] | None = None,
    may_change: bool = False,
) -> Any:
    """A dataclass field with its sentence and limits; a list's limits hold for each element.

    ``may_change``: a resumed run may change it, because what is trained does not depend on it, rounding aside.
    """
    limits = {"minimum": minimum, "above": above, "maximum": maximum, "below": below}
    metadata = {"doc": doc, "limits": limits, "choices": choices, "may_change": may_change}
    return dataclasses.field(default=default, metadata=metadata)


class _NamedText(io.StringIO):
    """A text with the name that PyYAML gives in messages."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, except that a key given twice is an error, not the last one wins.

    Aliases (``*name``) are refused: a few of them, nested, stand for more than memory holds.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """As PyYAML's; ``UserError`` for an alias."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise UserError(
                f"{event.start_mark.name}, line {event.start_mark.line + 1}, has the alias *{_cut(event.anchor)}: write out what "
                "it stands for."
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping; ``UserError`` when a key occurs twice."""
        lines: dict[str, int] = {}
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        for key_node, _ in pairs:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            line = key_node.start_mark.line + 1
            if key_node.value in lines:
                raise UserError(
                    f"{key_node.start_mark.name} gives {_cut(key_node.value)} twice, on lines "
                    f"{lines[key_node.value]} and {line}: keep one."
                )
            lines[key_node.value] = line
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """What the YAML file holds, None when empty; ``UserError`` with the line when malformed."""
    try:
        num_bytes = path.stat().st_size
        if num_bytes > MAX_YAML_BYTES:
            raise UserError(
                f"{path} has {num_bytes:,} bytes, but a config file has at most {MAX_YAML_BYTES:,}: is it another file?"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give another config file.") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid YAML: {error}.") from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, origin: str) -> Any:
    """What the YAML text holds, None when empty; ``UserError`` with ``origin`` and the line when malformed."""
    try:
        return yaml.load(_NamedText(text, origin), Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{origin}{line}: not valid YAML ({_cut(str(error.problem))}).") from error
    except RecursionError as error:
        raise UserError(f"{origin} is not a config: it is nested too deeply.") from error
    # ValueError: a date such as 2024-13-45, or a number of thousands of digits.
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{origin} is not valid YAML: {_cut(str(error))}.") from error


def build_section(section_type: type[SectionT], name: str, values: Mapping[str, Any]) -> SectionT:
    """The section with ``values`` over its defaults; ``UserError`` for a wrong type or value.

    Args:
        section_type: a dataclass whose fields were made by ``option``.
        name: the section's name, for messages.
        values: known keys only; ``unknown_key_message`` explains the others.
    """
    hints = typing.get_type_hints(section_type)
    fields = {field.name: field for field in dataclasses.fields(section_type)}  # type: ignore[arg-type]
    converted: dict[str, Any] = {}
    for key, value in values.items():
        fitted = _fit(value, hints[key])
        if any(map(_is_no_text, fitted if isinstance(fitted, tuple) else (fitted,))):
            raise UserError(f"{name}.{key} is {show(value)}, but it must be text without NUL and lone surrogates.")
        if fitted is _NO_FIT or not _is_within_limits(fitted, fields[key]):
            hint = ""
            if takes_text(section_type, key) and not isinstance(value, str | list | dict):
                hint = " Put text that looks like something else in quotes."
            if fields[key].metadata["choices"] and isinstance(value, str):
                hint = nearest(value.lower(), [c for c in fields[key].metadata["choices"] if isinstance(c, str)])
            raise UserError(
                f"{name}.{key} is {show(value)}, but it must be {expectation(hints[key], fields[key])}.{hint}"
            )
        converted[key] = fitted
    return section_type(**converted)


def unknown_key_message(section: str, key: str, sections: Mapping[str, type], source: str = "") -> str:
    """Says that ``section.key`` does not exist, and the key that was probably meant."""
    where = f" (in {source})" if source else ""
    key = _cut(key)
    homes = [f"{name}.{key}" for name, cls in sections.items() if key in field_names(cls)]
    message = f"Unknown key {section}.{key}{where}."
    if homes:
        return f"{message} Did you mean {' or '.join(homes)}?"
    suggestion = nearest(key, field_names(sections[section]))
    if not suggestion:
        all_keys = [f"{name}.{k}" for name, cls in sections.items() for k in field_names(cls)]
        suggestion = nearest(f"{section}.{key}", all_keys)
    return message + suggestion


def unknown_section_message(name: str, sections: Mapping[str, type], source: str = "") -> str:
    """Says that a section does not exist; a key written without its section gets its full name."""
    where = f" (in {source})" if source else ""
    name = _cut(name)
    homes = [f"{section}.{name}" for section, cls in sections.items() if name in field_names(cls)]
    if homes:
        return f"{name} needs its section{where}: write {' or '.join(homes)}."
    keys = [key for section_type in sections.values() for key in field_names(section_type)]
    suggestion = nearest(name, [*sections, *keys])
    return f"Unknown section {name}{where}; there are {', '.join(sections)}.{suggestion}"


def field_names(section_type: type) -> list[str]:
    """The keys of a section, in the order of the schema."""
    return [field.name for field in dataclasses.fields(section_type)]


def takes_text(section_type: type, key: str) -> bool:
    """Whether the field is plain text, or text or null: its override needs no YAML quoting."""
    members = set(_members(typing.get_type_hints(section_type)[key]))
    return members <= {str, type(None)}


def as_plain(section: Any) -> dict[str, Any]:
    """The section as a dict of what YAML can hold: tuples become lists."""
    plain = dataclasses.asdict(section)
    return {key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()}


def describe_section(name: str, section_type: type) -> list[str]:
    """One line a field: ``section.key (type, default): sentence``."""
    hints = typing.get_type_hints(section_type)
    lines = []
    for field in dataclasses.fields(section_type):
        choices = field.metadata["choices"]
        type_text = "|".join(show(c) for c in choices) if choices else _short(hints[field.name])
        doc = field.metadata["doc"]
        lines.append(f"{name}.{field.name} ({type_text}, {show(field.default)}): {doc}")
    return lines


def expectation(annotation: Any, field: dataclasses.Field[Any]) -> str:
    """What a field takes, in words: ``a whole number, at least 1, or null``."""
    choices = field.metadata["choices"]
    if choices:
        text = "one of " + ", ".join(show(choice) for choice in choices)
    else:
        text = " or ".join(_words(m) for m in _members(annotation) if m is not type(None))
    limits = field.metadata["limits"]
    phrases = {"minimum": "at least", "above": "above", "maximum": "at most", "below": "below"}
    bounds = [f"{phrases[name]} {value}" for name, value in limits.items() if value is not None]
    if bounds:
        each = "each " if "list" in text else ""
        text += f", {each}{' and '.join(bounds)}"
    if type(None) in _members(annotation):
        text += ", or null" if bounds else " or null"
    return text


def show(value: Any) -> str:
    """A value as a user would type it in YAML; text is quoted only where it would be misread. Long ones are cut."""
    return _cut(_shown(value, depth=4))


def _shown(value: Any, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | dict) and not depth:
        return "..."
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_shown(element, depth - 1) for element in value[:20]) + ", ..." * (len(value) > 20) + "]"
    if isinstance(value, dict):
        pairs = [f"{_shown(k, depth - 1)}: {_shown(v, depth - 1)}" for k, v in list(value.items())[:20]]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, int) and abs(value) >= 10**100:
        return "a number of more than 100 digits"  # Python refuses to print one of thousands
    if isinstance(value, str) and (not value or not value.isprintable() or " " in value or _digits(value)):
        return repr(value[: _MAX_SHOWN + 1])
    return f"{value}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def _is_no_text(value: Any) -> bool:
    """Neither a path nor a prompt can hold these."""
    return isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value)


def _digits(text: str) -> bool:
    return text[0].isdigit() or text[0] in "+-."


def _members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation alone."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _fit(value: Any, annotation: Any) -> Any:
    """``value`` as the annotated type, or ``_NO_FIT``."""
    for member in _members(annotation):
        fitted = _fit_one(value, member)
        if fitted is not _NO_FIT:
            return fitted
    return _NO_FIT


def _fit_one(value: Any, kind: Any) -> Any:
    if typing.get_origin(kind) is tuple:
        return _fit_list(value, typing.get_args(kind))
    if kind is float:
        return _fit_float(value)
    # A bool is an int to Python, but `batch_size: true` is a slip; and so is a number that no machine counts to.
    if kind is int and (isinstance(value, bool) or (isinstance(value, int) and abs(value) >= 2**63)):
        return _NO_FIT
    return value if isinstance(value, kind) else _NO_FIT


def _fit_float(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _NO_FIT
    try:
        # YAML 1.1 reads `1e-5` (no dot) as text.
        number = float(value)
    except (ValueError, OverflowError):
        return _NO_FIT
    return number if math.isfinite(number) else _NO_FIT


def _fit_list(value: Any, args: tuple[Any, ...]) -> Any:
    if not isinstance(value, list | tuple):
        return _NO_FIT
    if args[-1] is Ellipsis:
        if not value:
            return _NO_FIT
        args = (args[0],) * len(value)
    if len(value) != len(args):
        return _NO_FIT
    fitted = [_fit(element, kind) for element, kind in zip(value, args, strict=True)]
    return _NO_FIT if any(element is _NO_FIT for element in fitted) else tuple(fitted)


def _is_within_limits(value: Any, field: dataclasses.Field[Any]) -> bool:
    if value is None:
        return True
    choices = field.metadata["choices"]
    if choices and value not in choices:
        return False
    limits = field.metadata["limits"]
    for element in value if isinstance(value, tuple) else (value,):
        if limits["minimum"] is not None and element < limits["minimum"]:
            return False
        if limits["above"] is not None and element <= limits["above"]:
            return False
        if limits["maximum"] is not None and element > limits["maximum"]:
            return False
        if limits["below"] is not None and element >= limits["below"]:
            return False
    return True


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        args = typing.get_args(kind)
        count = "" if args[-1] is Ellipsis else f"{len(args)} "
        return f"a list of {count}{_PLURAL_WORDS[args[0]]}"
    return _TYPE_WORDS[kind]


def _short(annotation: Any) -> str:
    names = []
    for kind in _members(annotation):
        if kind is type(None):
            names.append("null")
        elif typing.get_origin(kind) is tuple:
            names.append(f"list[{typing.get_args(kind)[0].__name__}]")
        else:
            names.append(kind.__name__)
    return "|".join(names)
