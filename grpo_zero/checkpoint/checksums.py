"""Checksums of a folder's files, so that a flipped byte or a file cut short is found before it is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from grpo_zero.errors import UserError
from grpo_zero.json_text import json_object

CHECKSUMS_FILE = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write ``checksums.json``: bytes and SHA-256 of every other file in ``folder``, by relative path."""
    target = folder / CHECKSUMS_FILE
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != target]
    found = {path.relative_to(folder).as_posix(): _facts(path) for path in files}
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def damage(folder: Path) -> str | None:
    """What is wrong with the first file that is not as it was written, in words; None when all are."""
    if not (folder / CHECKSUMS_FILE).is_file():
        return f"{CHECKSUMS_FILE} is missing"
    try:
        expected = json_object((folder / CHECKSUMS_FILE).read_bytes(), CHECKSUMS_FILE)
    except UserError:
        return f"{CHECKSUMS_FILE} is damaged"
    if not all(_is_entry(name, entry) for name, entry in expected.items()):
        return f"{CHECKSUMS_FILE} is damaged"
    present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name, entry in expected.items():
        if name not in present:
            return f"{name} is missing"
        found = present[name].stat().st_size
        if found != entry["bytes"]:
            return f"{name} has {found} bytes instead of {entry['bytes']}"
        if _digest(present[name]) != entry["sha256"]:
            return f"{name} has changed since it was written"
    return None


def _is_entry(name: str, entry: Any) -> bool:
    """Also that ``name`` cannot be taken for a path out of the folder or for lines of a message."""
    is_name = name.isprintable() and len(name) < 1000
    return (
        is_name and isinstance(entry, dict) and type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)
    )


def _facts(path: Path) -> dict[str, int | str]:
    return {"bytes": path.stat().st_size, "sha256": _digest(path)}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
