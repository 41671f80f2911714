"""From YAML and overrides to a checked configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from grpo_zero.config.checks import check_config
from grpo_zero.config.sections import SECTIONS, Config
from grpo_zero.errors import UserError, nearest
from grpo_zero.presets import AlgorithmConfig, with_preset
from grpo_zero.settings import (
    build_section,
    describe_section,
    field_names,
    parse_yaml,
    read_yaml,
    show,
    takes_text,
    unknown_key_message,
    unknown_section_message,
)

PRESET = ("algorithm", "preset")
"""The key that ``algorithm: dapo`` is short for."""


def load_config(path: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """The checked configuration: defaults, then the file, then ``section.key=value`` overrides.

    Args:
        path: a YAML file or the name of a packaged config; None for the defaults.
        overrides: values are YAML, except that a text field takes its text as it is.

    Raises:
        UserError: for anything a user got wrong, before anything else is loaded.
    """
    values = _read_sections(resolve_config_path(path)) if path is not None else {}
    parsed = [_parse_override(override) for override in overrides]
    for section, key, value in parsed:
        if (section, key) == PRESET:
            values[section] = {key: value}  # another preset means its parts, not those of the one before
    for section, key, value in parsed:
        values.setdefault(section, {})[key] = value
    return config_from_dict(values)


def config_from_dict(values: Mapping[str, Mapping[str, Any]], source: str = "") -> Config:
    """The checked configuration with ``values`` over the defaults; ``UserError`` as above."""
    values = {name: _spelled_out(name, keys) for name, keys in values.items()}
    _refuse_unknown(values, source)
    if "algorithm" in values:
        build_section(
            AlgorithmConfig, "algorithm", values["algorithm"]
        )  # judges what was given, before a preset joins it
        values["algorithm"] = with_preset(values["algorithm"])
    built: dict[str, Any] = {name: build_section(SECTIONS[name], name, keys) for name, keys in values.items()}
    config = Config(**built)
    check_config(config)
    return config


def dump_yaml(config: Config) -> str:
    """YAML text that loads as an equal configuration."""
    return yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)


def describe_options() -> str:
    """Every option, for ``--help``: ``section.key (type, default): sentence``."""
    blocks = ["\n".join(describe_section(name, cls)) for name, cls in SECTIONS.items()]
    return "\n\n".join(blocks)


def resolve_config_path(name: str) -> Path:
    """The file ``name`` if there is one, else the packaged config of that name."""
    path = Path(name)
    if path.is_file():
        return path
    packaged = packaged_configs()
    known = packaged.get(name.removesuffix(".yaml"))
    if known is not None:
        return known
    names = ", ".join(packaged) or "none"
    raise UserError(
        f"There is no config file {name!r} in {Path.cwd()}, nor a packaged config of that name "
        f"(packaged: {names}).{nearest(name, packaged)}"
    )


def packaged_configs() -> dict[str, Path]:
    """The YAML files that come with the package, by name."""
    folder = Path(str(resources.files("grpo_zero"))) / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _refuse_unknown(values: Mapping[str, Any], source: str) -> None:
    for section, keys in values.items():
        if section not in SECTIONS:
            raise UserError(unknown_section_message(_key_text(section), SECTIONS, source))
        if not isinstance(keys, Mapping):
            raise UserError(f"{section} is {show(keys)}, but it must be a section: keys with values, indented.")
        for key in keys:
            if key not in field_names(SECTIONS[section]):
                raise UserError(unknown_key_message(section, _key_text(key), SECTIONS, source))


def _key_text(key: Any) -> str:
    """A key of a YAML file, which need not be text, in a message."""
    return key if isinstance(key, str) else show(key)


def _spelled_out(section: str, keys: Any) -> Any:
    """``algorithm: dapo`` as ``algorithm: {preset: dapo}``; everything else as it is."""
    return {PRESET[1]: keys} if section == PRESET[0] and isinstance(keys, str) else keys


def _parse_override(override: str) -> tuple[str, str, Any]:
    name, equals, text = override.partition("=")
    section, dot, key = name.strip().partition(".")
    if equals and (section, dot) == (PRESET[0], ""):
        section, dot, key = PRESET[0], ".", PRESET[1]
    if not equals or (section in SECTIONS and not dot):
        raise UserError(f"{override[:200]!r} is no setting; write section.key=value, as in training.max_steps=50.")
    if not dot or section not in SECTIONS:
        raise UserError(unknown_section_message(section, SECTIONS))
    if key not in field_names(SECTIONS[section]):
        raise UserError(unknown_key_message(section, key, SECTIONS))
    # `data.prompt=Use {nums}: ...` and `training.run_name=7` are meant as text.
    if takes_text(SECTIONS[section], key) and text != "null" and text[:1] not in ("'", '"'):
        return section, key, text
    return section, key, parse_yaml(text, f"the value of {override[:200]!r}")


def _read_sections(path: Path) -> dict[str, dict[str, Any]]:
    """The file's sections; an empty file or section is an empty mapping."""
    loaded = read_yaml(path)
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UserError(f"{path} holds {show(loaded)}, but a config file holds sections: {', '.join(SECTIONS)}.")
    values = {name: {} if keys is None else _spelled_out(name, keys) for name, keys in loaded.items()}
    _refuse_unknown(values, str(path))
    return values
