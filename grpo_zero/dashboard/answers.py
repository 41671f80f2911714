"""Answers as the page shows them: groups of a step, the answers of a group, one held-out question through training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grpo_zero.dashboard.sample_blocks import block_rows, number_of, row_at, row_of
from grpo_zero.dashboard.token_pieces import pieces, stop_logprob

SHOWN_CHARACTERS = 2000
"""Of an answer that comes with its group; the rest is asked for by ``text``."""
USER_TURNS = (
    re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL),
    re.compile(r"<\|start_header_id\|>user<\|end_header_id\|>\n\n(.*?)<\|eot_id\|>", re.DOTALL),
)
"""What the user says in the chat templates of the supported families."""

Row = dict[str, Any]


def groups(path: Path, step: int, kind: str, group_size: int | None) -> list[dict[str, Any]]:
    """The groups of a step, without the answers' texts.

    Args:
        path: samples.jsonl.
        step, kind: which rows.
        group_size: answers to a question, so that the same question twice in a row stays two groups; None where not known.

    Returns:
        For each its ``question``, ``marks`` (one of right, wrong, truncated an answer), ``rewards`` and whether it is
        ``zero_variance``.
    """
    found = []
    for index, rows in enumerate(_split(path, step, kind, group_size)):
        rewards = [number_of(row.get("reward")) for _, row in rows]
        found.append(
            {
                "index": index,
                "question": question_of(str(rows[0][1].get("prompt", ""))),
                "marks": [mark_of(row) for _, row in rows],
                "rewards": rewards,
                "zero_variance": len(set(rewards)) == 1 and len(rewards) > 1,
            }
        )
    return found


def group(path: Path, step: int, kind: str, group_size: int | None, index: int) -> dict[str, Any] | None:
    """One group with its ``prompt`` and ``answers``, long texts cut; None where there is no such group."""
    for number, rows in enumerate(_split(path, step, kind, group_size)):
        if number == index:
            return {
                "prompt": str(rows[0][1].get("prompt", "")),
                "answers": [answer_of(offset, row) for offset, row in rows],
            }
    return None


def follow(path: Path, steps: Sequence[int], group_size: int | None, index: int) -> dict[str, Any] | None:
    """One held-out question in every evaluation.

    Args:
        path: samples.jsonl.
        steps: those with an evaluation, ascending.
        group_size: answers to a question.
        index: the question's place in the latest evaluation.

    Returns:
        ``question`` and, for each evaluation that asked it, ``step`` and ``answers``; None where there is no such question.
    """
    if not steps:
        return None
    latest = group(path, steps[-1], "eval", group_size, index)
    if latest is None:
        return None
    prompt = latest["prompt"]
    history = []
    for step in steps:
        rows = _rows_of_question(path, step, group_size, index, prompt)
        if rows:
            history.append({"step": step, "answers": [answer_of(offset, row) for offset, row in rows]})
    return {"question": question_of(prompt), "prompt": prompt, "history": history}


def text(path: Path, offset: int, start: int, count: int) -> dict[str, Any] | None:
    """``text`` and ``pieces`` of the answer whose row begins at byte ``offset``; None where no row begins there."""
    row = row_at(path, offset)
    if row is None:
        return None
    return {"text": str(row.get("response", ""))[start : start + count], "pieces": pieces(row, start, count)}


def answer_of(offset: int, row: Row) -> dict[str, Any]:
    """An answer for the page, of the types that it expects whatever the row holds."""
    response, parts = str(row.get("response", "")), row.get("parts")
    return {
        **{name: number_of(row.get(name)) for name in ("reward", "advantage", "length")},
        "parts": {name: number_of(value) for name, value in parts.items()} if isinstance(parts, dict) else {},
        "reason": str(row.get("reason") or ""),
        "is_finished": row.get("finish_reason") == "stop",
        "mark": mark_of(row),
        "response": response[:SHOWN_CHARACTERS],
        "characters": len(response),
        "pieces": pieces(row, 0, SHOWN_CHARACTERS),
        "stop_logprob": stop_logprob(row),
        "at": offset,
    }


def mark_of(row: Row) -> str:
    """``right``, else ``truncated`` where the length limit cut it, else ``wrong``."""
    if row.get("correct"):
        return "right"
    return "truncated" if row.get("finish_reason") == "length" else "wrong"


def question_of(prompt: str) -> str:
    """What the user asks last, without the chat template; the whole prompt where the template is not known."""
    for pattern in USER_TURNS:
        turns = pattern.findall(prompt)
        if turns:
            return str(turns[-1]).strip()[:SHOWN_CHARACTERS]
    return prompt.strip()[:SHOWN_CHARACTERS]


def _split(path: Path, step: int, kind: str, group_size: int | None) -> Iterator[list[tuple[int, Row]]]:
    """Rows of one prompt that follow each other, at most ``group_size`` of them."""
    pending: list[tuple[int, Row]] = []
    for offset, line in block_rows(path, step, kind):
        row = row_of(line)
        if row is None:
            continue
        is_full = group_size is not None and len(pending) >= group_size
        if pending and (is_full or row.get("prompt") != pending[0][1].get("prompt")):
            yield pending
            pending = []
        pending.append((offset, row))
    if pending:
        yield pending


def _rows_of_question(path: Path, step: int, group_size: int | None, index: int, prompt: str) -> list[tuple[int, Row]]:
    """Where it stood in the latest evaluation if it does, else wherever it is."""
    if group_size is not None:
        rows = []
        for number, (offset, line) in enumerate(block_rows(path, step, "eval")):
            if number >= (index + 1) * group_size:
                break
            row = row_of(line) if number >= index * group_size else None
            if row is not None and row.get("prompt") == prompt:
                rows.append((offset, row))
        if rows:
            return rows
    return next((rows for rows in _split(path, step, "eval", group_size) if rows[0][1].get("prompt") == prompt), [])
