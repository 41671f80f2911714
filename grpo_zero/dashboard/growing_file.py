"""A file that another process appends to, read from where the last reading ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CHUNK_BYTES = 1 << 20


class GrowingFile:
    """Whole lines of a file, each once. The file is open during a reading only, and never locked."""

    def __init__(self) -> None:
        self.offset = 0
        self._identity: tuple[int, int] | None = None

    def is_replaced(self, path: Path) -> bool:
        """Whether it is another file than at the last reading, or shorter: a resumed run writes it anew. Then start over."""
        stat = path.stat()
        identity = (stat.st_dev, stat.st_ino)
        is_other = self._identity not in (None, identity) or stat.st_size < self.offset
        self._identity = identity
        if is_other:
            self.offset = 0
        return is_other

    def new_lines(self, path: Path) -> Iterator[bytes]:
        """The lines written since the last reading; one that has no end yet waits for the next."""
        with path.open("rb") as stream:
            stream.seek(self.offset)
            pending = b""
            while chunk := stream.read(CHUNK_BYTES):
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self.offset += len(line) + 1
                    yield line
