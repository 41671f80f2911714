"""The header of a GGUF file: metadata and where each tensor lies.

Every count, length and offset is held against the file's size before anything is read or made, so a damaged or hostile file costs
no more than its own bytes. Format: ggml's docs/gguf.md, versions 2 and 3, little-endian: magic, version, counts of tensors
and keys, the keys with their values, the tensors' names, shapes, types and offsets, padding to the alignment, the tensors' bytes.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = (2, 3)
MAX_AXES = 4
"""Of a tensor, as in ggml."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type of a value in the file to its ``struct`` code."""
_STRING, _ARRAY = 8, 9
_ALIGNMENT = "general.alignment"


class GgufError(ValueError):
    """The file is no whole GGUF file; the message is the reason, in a few words."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor's bytes lie."""

    name: str
    shape: tuple[int, ...]
    """Outermost axis first; the file has the innermost first."""
    type_id: int
    """ggml's number of the block type."""
    start: int
    """Offset of its first byte in the file."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What stands before the tensors' bytes."""

    metadata: dict[str, Any]
    """Numbers, truth values, texts, and lists of one of these."""
    tensors: tuple[TensorPlace, ...]


def read_header(path: Path) -> GgufHeader:
    """Read the header. Raises ``GgufError`` for a file that is cut, damaged or of another format."""
    if path.stat().st_size < 24:
        raise GgufError("it is too short")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Cursor(data).header()


class _Cursor:
    """A place in the file that only moves forward and never past its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.size, self.at = data, len(data), 0

    def header(self) -> GgufHeader:
        if self.take(4) != b"GGUF":
            raise GgufError("it does not begin with GGUF")
        version = self.number("I")
        if version not in VERSIONS:
            raise GgufError(f"it is of version {version}, and not 2 or 3, or big-endian")
        # A tensor takes at least 24 bytes here (length of its name, axes, type, offset), a key 13.
        num_tensors, num_keys = self.count(24), self.count(13)
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self.text()
            if key in metadata:
                raise GgufError(f"the key {key[:60]!r} stands twice")
            metadata[key] = self.value(self.number("I"))
        alignment = metadata.get(_ALIGNMENT, 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise GgufError("its alignment is no power of two")
        found = [self.tensor() for _ in range(num_tensors)]
        if len({name for name, *_ in found}) < num_tensors:
            raise GgufError("a tensor's name stands twice")
        first = self.at + -self.at % alignment
        places = tuple(TensorPlace(name, shape, type_id, first + start) for name, shape, type_id, start in found)
        return GgufHeader(metadata, places)

    def take(self, num_bytes: int) -> bytes:
        start, self.at = self.at, self.at + num_bytes
        if self.at > self.size:
            raise GgufError("it ends within its header")
        return self.data[start : self.at]

    def number(self, code: str) -> Any:
        form = struct.Struct(f"<{code}")
        return form.unpack(self.take(form.size))[0]

    def count(self, least_bytes: int) -> int:
        """A count of things of which each takes at least so many bytes."""
        found = self.number("Q")
        if found * least_bytes > self.size - self.at:
            raise GgufError(f"it counts {found} parts, more than it has room for")
        return int(found)

    def text(self) -> str:
        try:
            return self.take(self.count(1)).decode("utf-8")
        except UnicodeDecodeError:
            raise GgufError("a text in it is no UTF-8") from None

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise GgufError(f"it has a value of type {kind}, which does not exist")
        element = self.number("I")
        if element == _STRING:
            return [self.text() for _ in range(self.count(8))]
        if element not in _SCALARS:
            raise GgufError(f"it has a list of elements of type {element}, which is not read")
        form = struct.Struct(f"<{_SCALARS[element]}")
        length = self.count(form.size)
        return [value for (value,) in form.iter_unpack(self.take(length * form.size))]

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, num_axes = self.text(), self.number("I")
        if num_axes > MAX_AXES:
            raise GgufError(f"its tensor {name[:60]!r} has {num_axes} axes, more than {MAX_AXES}")
        shape = tuple(self.number("Q") for _ in range(num_axes))[::-1]
        # The smallest block types take more than one bit a weight.
        if math.prod(shape) > 8 * self.size:
            raise GgufError(f"its tensor {name[:60]!r} is larger than the file")
        return name, shape, self.number("I"), self.number("Q")
