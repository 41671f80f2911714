"""An answer's text cut into its tokens, each with its log-prob, as the run recorded them (``observe/record.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_zero.dashboard.sample_blocks import number_of

Piece = tuple[int, float]
"""Characters, and the sum of the log-probs (nats) of the tokens that made them: a rare character takes several."""


def pieces(row: Mapping[str, Any], start: int, count: int) -> list[Piece] | None:
    """The pieces of ``count`` characters from ``start``, those at the ends cut to what lies within; None where not recorded."""
    tokens = _recorded(row)
    if tokens is None:
        return None
    found: list[Piece] = []
    begin, logprob, stop = 0, 0.0, start + count
    for characters, token_logprob in tokens:
        logprob += token_logprob
        if characters == 0:
            continue
        inside = min(begin + characters, stop) - max(begin, start)
        if inside > 0:
            found.append((inside, round(logprob, 3)))
        begin, logprob = begin + characters, 0.0
    return found


def stop_logprob(row: Mapping[str, Any]) -> float | None:
    """Log-prob of the token that ended the answer; None where the length limit did, or it was not recorded."""
    tokens = _recorded(row)
    return tokens[-1][1] if tokens and row.get("finish_reason") == "stop" else None


def _recorded(row: Mapping[str, Any]) -> list[Piece] | None:
    """Tokens as recorded; None for a row without them, or where they do not add up to its text."""
    characters, logprobs = row.get("token_characters"), row.get("token_logprobs")
    if not isinstance(characters, list) or not isinstance(logprobs, list) or len(characters) != len(logprobs):
        return None
    if not all(type(n) is int and n >= 0 for n in characters) or sum(characters) != len(str(row.get("response", ""))):
        return None
    if any(number_of(logprob) is None for logprob in logprobs):
        return None
    return list(zip(characters, logprobs, strict=True))
