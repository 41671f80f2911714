"""Checksums of a folder's files, so that a flipped byte or a file cut short is found before it is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

CHECKSUMS_FILE = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write ``checksums.json``: bytes and SHA-256 of every other file in ``folder``, by relative path."""
    target = folder / CHECKSUMS_FILE
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != target]
    found = {path.relative_to(folder).as_posix(): _facts(path) for path in files}
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def damage(folder: Path) -> str | None:
    """What is wrong with the first file that is not as it was written, in words; None when all are."""
    try:
        expected = json.loads((folder / CHECKSUMS_FILE).read_text(encoding="utf-8"))
        facts = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in expected.items()}
    except FileNotFoundError:
        return f"{CHECKSUMS_FILE} is missing"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{CHECKSUMS_FILE} is damaged"
    for name, (num_bytes, digest) in facts.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != num_bytes:
            return f"{name} has {path.stat().st_size} bytes instead of {num_bytes}"
        if _digest(path) != digest:
            return f"{name} has changed since it was written"
    return None


def _facts(path: Path) -> dict[str, int | str]:
    return {"bytes": path.stat().st_size, "sha256": _digest(path)}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
