"""A key that nothing reads is a promise that nothing keeps: every config key is used somewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import grpo_zero
from grpo_zero.config import SECTIONS
from grpo_zero.settings import field_names

PACKAGE = Path(grpo_zero.__file__).parent
SCHEMA_FILES = {PACKAGE / "settings.py", PACKAGE / "presets.py", *(PACKAGE / "config").glob("*.py")}
# The key is read by a property of the schema, and the package reads the property.
READ_THROUGH = {
    "training.batch_size": "num_answers_per_question",
    "training.questions_per_update": "part_size",
    "training.updates_per_rollout": "num_passes",
    "evaluation.max_gen_len": "evaluation_gen_len",
}


def attributes_by_file() -> list[set[str]]:
    """Of each file, the names after a dot and the plain names, comments and texts left out."""
    found = []
    for path in sorted(set(PACKAGE.rglob("*.py")) - SCHEMA_FILES):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        found.append(names | {node.id for node in nodes if isinstance(node, ast.Name)})
    return found


@pytest.mark.parametrize("section", list(SECTIONS))
def test_every_key_is_read(section: str) -> None:
    # `path` or `device` occur everywhere; they count in a file that also names the section.
    files = [names for names in attributes_by_file() if section in names or SECTIONS[section].__name__ in names]
    unread = [
        f"{section}.{key}"
        for key in field_names(SECTIONS[section])
        if not any(key in names or READ_THROUGH.get(f"{section}.{key}") in names for names in files)
    ]
    assert not unread, f"nothing in the package reads {', '.join(unread)}"
