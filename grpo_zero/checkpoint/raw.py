"""What every kind of checkpoint comes down to, before it is understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class TensorReader(Protocol):
    """Named tensors that are read one at a time, under Hugging Face names."""

    @property
    def names(self) -> frozenset[str]:
        """All there are."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Its shape, without reading the values."""
        ...

    def tensor(self, name: str) -> Tensor:
        """Its values on the CPU. Raises ``UserError`` when the file can't be read."""
        ...


@dataclass(frozen=True, slots=True)
class RawCheckpoint:
    """A checkpoint's parts as they lie on disk."""

    origin: str
    """Where it was found, for messages."""
    config: Mapping[str, Any]
    """``config.json`` of a Hugging Face folder, or the same made from other metadata."""
    files: Mapping[str, bytes]
    """Tokenizer and configuration files, name to bytes (see ``text/tokenizer.py``)."""
    reader: TensorReader | None
    """The weights, or ``None`` when they were not asked for."""
