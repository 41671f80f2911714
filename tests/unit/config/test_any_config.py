"""Any YAML, any bytes, any override: a configuration, or one sentence."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.damage import JUNK, damaged_bytes
from hypothesis import given
from hypothesis import strategies as st

from grpo_zero.config import SECTIONS, Config, config_notes, dump_yaml, load_config
from grpo_zero.errors import UserError
from grpo_zero.settings import MAX_YAML_BYTES, field_names, parse_yaml, show

ANY = st.text(st.characters(exclude_categories=()))
KEYS = st.sampled_from([(section, key) for section, cls in SECTIONS.items() for key in field_names(cls)])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY | st.sampled_from(JUNK)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(SCALARS.filter(_hashable := lambda v: v.__hash__ is not None), inner, max_size=3)
    ),
    max_leaves=5,
)
PIECES = [
    "training:",
    "model:",
    "\n",
    "  ",
    "- ",
    "batch_size: 8",
    "!!python/object/apply:os.system",
    "&a ",
    "*a",
    "<<: ",
    "? ",
    ": ",
    "|",
    ">",
    "{",
    "}",
    "[",
    "]",
    "'",
    '"',
    "#",
    "%YAML",
    "---",
    "...",
    "!!binary ",
    "!!set",
    "0x7f",
    "1e5",
    "2024-13-45",
    "~",
    "\t",
    "\0",
    "\ud800",
    "@",
    "`",
]


def loaded(path: Path, content: bytes) -> Config | str:
    """The configuration in a file of that content, or the sentence it is refused with."""
    path.write_bytes(content)
    try:
        config = load_config(str(path))
    except UserError as error:
        return sentence(error)
    assert load_dumped(path, config) == config
    config_notes(config)
    return config


def load_dumped(path: Path, config: Config) -> Config:
    path.write_text(dump_yaml(config), encoding="utf-8")
    return load_config(str(path))


def sentence(error: UserError) -> str:
    message = str(error)
    assert 20 < len(message) < 3000
    assert message.rstrip().endswith((".", "?"))
    return message


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config") / "c.yaml"


@given(
    content=st.binary()
    | ANY.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(st.sampled_from(PIECES), max_size=15).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass"))
)
def test_any_bytes(path: Path, content: bytes) -> None:
    loaded(path, content)


@given(values=st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_values(path: Path, values: dict[tuple[str, str], Any]) -> None:
    tree: dict[str, dict[str, Any]] = {}
    for (section, key), value in values.items():
        tree.setdefault(section, {})[key] = value
    loaded(path, yaml.dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass"))


@given(data=st.data())
def test_damaged_config(path: Path, data: st.DataObject) -> None:
    loaded(path, data.draw(damaged_bytes(dump_yaml(Config()).encode())))


@given(
    overrides=st.lists(
        ANY | st.tuples(KEYS, ANY | st.sampled_from(PIECES)).map(lambda pair: f"{pair[0][0]}.{pair[0][1]}={pair[1]}"),
        max_size=3,
    )
)
def test_any_override(overrides: list[str]) -> None:
    try:
        load_config(None, overrides)
    except UserError as error:
        sentence(error)


@given(VALUES)
def test_any_value_is_shown_in_short(value: Any) -> None:
    assert len(show(value)) <= 200


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} {{<<: [*{chr(97 + i)}, *{chr(97 + i)}]}}\n" for i in range(20)
)
BOMBS = {
    "aliases": (LAUGHS, r"c.yaml, line 2, has the alias \*a: write out"),
    "merge keys": (MERGES, r"has the alias \*a"),
    "a list in itself": ("training: &a [*a]\n", "has the alias"),
    "deep lists": ("training: " + "[" * 20_000, "nested too deeply|not valid YAML"),
    "deep dicts": ("training: " + "{a: " * 20_000, "nested too deeply|not valid YAML"),
    "deep blocks": ("\n".join(" " * n + "a:" for n in range(600)), "nested too deeply|Unknown section"),
    "digits": ("training: {batch_size: " + "9" * 5000 + "}", "not valid YAML"),
    "hexadecimal digits": ("training: {batch_size: 0x" + "f" * 5000 + "}", "a number of more than 100 digits"),
    "a number as a section": ("? 0x" + "f" * 5000 + "\n: 1", "Unknown section"),
    "a number as a key": ("training: {? 0x" + "f" * 5000 + " : 1}", "Unknown key"),
    "a float of many digits": ("training: {learning_rate: 1" + "0" * 4000 + "}", "must be a number"),
    "code": ("training: !!python/object/apply:os.system ['true']", "not valid YAML"),
    "an object": ("training: !!python/name:os.system", "not valid YAML"),
    "a long key": ("training: {? " + "k" * 100_000 + " : 1}", "Unknown key training.kkk"),
    "a long section": ("k" * 1000 + ": 1", "Unknown section kkk"),
    "a long value": ("training: {batch_size: '" + "k" * 100_000 + "'}", r"is kkk+\.\.\., but"),
    "a batch beyond counting": ("training: {batch_size: 1000000000000001}", "is not a whole number of answers"),
    "parts beyond counting": (
        "training: {batch_size: 2000000000000000, num_questions_per_batch: 1000000000000000, questions_per_update: 7}",
        "do not split into parts",
    ),
    "a list as a key": ("training: {[1, 2]: 3}", "not valid YAML"),
    "a set": ("training: !!set {a, b}", "training is"),
    "bytes": ("model: {device: !!binary aGk=}", "model.device is"),
    "a date": ("training: {run_name: 2024-01-05}", "in quotes"),
    "NUL": ("training: {run_name: 'a\0'}", "not valid YAML"),
    "two documents": ("training: {}\n---\nmodel: {}\n", "not valid YAML"),
    "large": ("#" * (MAX_YAML_BYTES + 1), "200,001 bytes, but a config file has at most 200,000"),
}


@pytest.mark.parametrize(("text", "words"), BOMBS.values(), ids=BOMBS)
def test_bombs(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    start = time.monotonic()
    with pytest.raises(UserError, match=words) as caught:
        load_config(str(path))
    assert time.monotonic() - start < 30
    sentence(caught.value)


def test_a_folder_in_place_of_a_config(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no config file"):
        load_config(str(tmp_path))
    assert parse_yaml("", "x") is None
