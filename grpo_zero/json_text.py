"""JSON from files that may be damaged or meant to harm, and JSON that people read. No torch here."""

from __future__ import annotations

import json
import re
from typing import Any

from grpo_zero.errors import UserError

_SURROGATE = re.compile("[\ud800-\udfff]")


def json_object(data: bytes, place: str, advice: str = "copy or download that file again") -> dict[str, Any]:
    """The JSON object in ``data``.

    Args:
        data: the file's bytes, UTF-8.
        place: names the file in messages.
        advice: what to do when it is none.

    Raises:
        UserError: not JSON, nested too deeply to be read, or no object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UserError(f"{place} is not readable JSON ({reason}); {advice}.") from error
    if not isinstance(value, dict):
        raise UserError(f"{place} holds a {type(value).__name__} where a JSON object was expected; {advice}.")
    return value


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that is read by eye: only what UTF-8 cannot hold, lone surrogates, stands as an escape."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
