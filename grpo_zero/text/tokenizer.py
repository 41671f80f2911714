"""Text to token ids and back, and which ids end an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from grpo_zero.errors import UserError
from grpo_zero.json_text import json_object

if TYPE_CHECKING:
    import tokenizers

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
"""What a Hugging Face folder may hold of its tokenizer; a saved model gets them byte for byte."""

CONFIG_FILES = ("config.json", "generation_config.json")
"""Read for their ``eos_token_id``; a saved model gets its own."""

END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "</s>")
"""Special tokens that end an answer wherever they exist, whichever of them the configs name.

A base model ends with its end of text, a chat model with its end of turn, and config files disagree
about which is ``eos`` (fault T01); we stop on all of them.
"""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What bytes that are no UTF-8 are decoded to."""


class Tokenizer:
    """A byte-level BPE of the ``tokenizers`` library with the facts that sampling needs.

    ``files`` holds the tokenizer's own files, name to bytes. ``stop_ids`` holds every id that ends
    an answer.
    """

    def __init__(self, files: Mapping[str, bytes], *, origin: str) -> None:
        """Build from the bytes of ``TOKENIZER_FILES`` and ``CONFIG_FILES``, those that exist.

        ``origin`` says in messages where they came from. Raises ``UserError`` when tokenizer.json
        is missing or unreadable, or when no token that ends an answer is known.
        """
        self.origin = origin
        self.files = {name: files[name] for name in TOKENIZER_FILES if name in files}
        self._backend = _load_backend(self.files, origin)
        config = read_json(files, "tokenizer_config.json", origin)
        self._pieces: dict[int, str] = {}
        self._ids = frozenset(self._backend.get_vocab(with_added_tokens=True).values())
        self.bos_token = _token_text(config.get("bos_token"))
        self.eos_token = _token_text(config.get("eos_token"))
        self.stop_ids = self._find_stop_ids(files)

    @classmethod
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """Read a Hugging Face folder. Raises ``UserError`` as the constructor does."""
        return cls(read_files(Path(folder)), origin=str(folder))

    @property
    def vocab_size(self) -> int:
        """The highest id plus one: rows that an embedding table needs at least."""
        return max(self._ids) + 1

    @property
    def end_of_turn_id(self) -> int:
        """The stop id a finished answer is taught to end with: the configured eos token, else the lowest stop id."""
        eos_id = self._backend.token_to_id(self.eos_token) if self.eos_token else None
        return eos_id if eos_id in self.stop_ids else min(self.stop_ids)

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``. Nothing is added; special tokens in the text become their ids, lone surrogates U+FFFD."""
        if not text.isascii():  # JSON may hold halves of a surrogate pair, which are no characters
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        with _library_faults(self.origin):
            return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, special tokens included, spaces untouched.

        Ids without a token give nothing. Bytes that are not UTF-8 give U+FFFD.
        """
        with _library_faults(self.origin):
            return self._backend.decode(list(ids), skip_special_tokens=False)

    def decode_completion(self, ids: Sequence[int]) -> str:
        """Text of a sampled answer, without the stop id it ends with (when it ends with one)."""
        ends_with_stop = len(ids) > 0 and ids[-1] in self.stop_ids
        return self.decode(ids[:-1] if ends_with_stop else ids)

    def piece_lengths(self, ids: Sequence[int]) -> list[int]:
        """Characters that each id adds to ``decode(ids)``; they sum to its length.

        Of the tokens that share a character the one that completes it has it, and the others 0.
        """
        pieces = [self._piece(token_id) for token_id in ids]
        if "".join(pieces) == self.decode(ids):
            return [len(piece) for piece in pieces]
        return self._shared_lengths(ids)

    def _shared_lengths(self, ids: Sequence[int]) -> list[int]:
        """``piece_lengths`` where tokens share characters.

        A token goes on with the character that the ones before it began where they read otherwise together than apart.
        """
        lengths: list[int] = []
        first, run = 0, ""  # the tokens since the last place where a token and a character end together, and their text
        for at, token_id in enumerate(ids):
            piece = self._piece(token_id)
            joined = self.decode(ids[first : at + 1]) if run.endswith(REPLACEMENT) else run + piece
            if joined == run + piece:
                first, run = at, piece
            else:
                lengths[-1], run = 0, joined
            lengths.append(len(run))
        return lengths

    def _piece(self, token_id: int) -> str:
        """The text of one id alone; each is decoded once."""
        if token_id not in self._pieces:
            self._pieces[token_id] = self.decode([token_id])
        return self._pieces[token_id]

    def token_id(self, token: str) -> int | None:
        """Id of exactly this token, or ``None``."""
        return self._backend.token_to_id(token)

    def has_token_V(self, vocab_size: int) -> npt.NDArray[np.bool_]:
        """Which of a model's ``vocab_size`` ids stand for a token, bool ``[V]``.

        Qwen's embedding has hundreds of rows that no token uses; sampling must never give them.
        """
        mask_V = np.zeros(vocab_size, dtype=np.bool_)
        mask_V[[token_id for token_id in self._ids if token_id < vocab_size]] = True
        return mask_V

    def _find_stop_ids(self, files: Mapping[str, bytes]) -> frozenset[int]:
        found: set[int] = set()
        for name in CONFIG_FILES:
            found.update(_as_ids(read_json(files, name, self.origin).get("eos_token_id"), f"{name} in {self.origin}"))
        special = {
            token.content: token_id
            for token_id, token in self._backend.get_added_tokens_decoder().items()
            if token.special
        }
        found.update(special[token] for token in END_TOKENS if token in special)
        eos_id = self._backend.token_to_id(self.eos_token) if self.eos_token else None
        found.update(() if eos_id is None else (eos_id,))
        if not found & self._ids:
            raise UserError(
                f"The tokenizer in {self.origin} names no token that ends an answer; expected an "
                f"eos_token in tokenizer_config.json or an eos_token_id in generation_config.json: "
                f"add one of them."
            )
        return frozenset(found & self._ids)


def read_files(folder: Path) -> dict[str, bytes]:
    """The bytes of ``TOKENIZER_FILES`` and ``CONFIG_FILES`` that ``folder`` holds, by name."""
    names = (*TOKENIZER_FILES, *CONFIG_FILES)
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def read_json(files: Mapping[str, bytes], name: str, origin: str) -> dict[str, Any]:
    """The JSON object in ``files[name]``; empty when there is no such file.

    Raises ``UserError`` when it is not a JSON object.
    """
    if name not in files:
        return {}
    return json_object(files[name], f"{name} in {origin}")


def _load_backend(files: Mapping[str, bytes], origin: str) -> tokenizers.Tokenizer:
    if "tokenizer.json" not in files:
        raise UserError(
            f"There is no tokenizer.json in {origin}; expected the file of the `tokenizers` "
            f"library: download it with the model, or save it with transformers' "
            f"AutoTokenizer.save_pretrained."
        )
    import tokenizers  # here, so that commands that tokenize nothing start without it

    with _library_faults(origin):
        backend = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode("utf-8"))
    if not backend.get_vocab_size(with_added_tokens=True):
        raise _unreadable(origin, "it has no tokens")
    backend.no_truncation()  # a long prompt must be refused by us, never cut in silence (fault T04)
    backend.no_padding()
    return backend


@contextlib.contextmanager
def _library_faults(origin: str) -> Iterator[None]:
    """The library raises a bare Exception for every malformed file, and panics, which Python cannot name, for some."""
    try:
        yield
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"
        if type(error) not in (Exception, UnicodeDecodeError) and not is_panic:
            raise
        raise _unreadable(origin, error) from error


def _unreadable(origin: str, reason: object) -> UserError:
    return UserError(
        f"tokenizer.json in {origin} can't be read ({str(reason)[:200]}); copy or download that file again."
    )


def _token_text(value: Any) -> str | None:
    """A token as tokenizer_config.json writes it: text, an object with ``content``, or null."""
    if isinstance(value, Mapping):
        value = value.get("content")
    is_text = isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
    return value if is_text else None


def _as_ids(value: Any, place: str) -> Iterable[int]:
    """``eos_token_id`` as config files write it: one id, a list of ids, or null. Raises ``UserError`` for anything else."""
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(token_id, int) for token_id in ids):
        raise UserError(
            f"{place} has an eos_token_id that is no id and no list of ids; correct it, or download that file again."
        )
    return ids
