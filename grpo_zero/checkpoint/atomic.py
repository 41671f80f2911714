"""Write a folder aside, then rename it: a reader finds all of it or nothing (fault K06)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """A temporary sibling to write into; it becomes ``folder`` when the block ends well.

    An older ``folder`` is set aside before and removed after; a kill between the two renames leaves
    it whole as ``.NAME.old``. An error in the block removes the sibling and leaves ``folder``
    alone.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f".{folder.name}.tmp-{os.getpid()}"
    old = folder.parent / f".{folder.name}.old"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        _flush(aside)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    aside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Have the files on the disk before the name says that they are there."""
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
