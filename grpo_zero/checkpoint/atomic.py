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

    An older ``folder`` is set aside before and removed after; a kill between the two renames leaves it whole as ``.NAME.old``,
    from where ``recover`` brings it back. An error in the block removes the sibling and leaves ``folder`` alone.
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
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove it, under another name: a kill in between leaves nothing that looks like the folder and is not whole."""
    aside = folder.parent / f".{folder.name}.tmp-{os.getpid()}"
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def recover(parent: Path) -> None:
    """Tidy up after a kill: bring back a folder that was set aside and not replaced, remove what was never finished.

    Nobody else may be writing there.
    """
    for old in parent.glob(".*.old"):
        folder = parent / old.name.removeprefix(".").removesuffix(".old")
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(folder)
    for aside in parent.glob(".*.tmp-*"):
        shutil.rmtree(aside, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Have files and folders on the disk before the name says that they are there."""
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
