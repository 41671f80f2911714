"""The tags around reasoning and answer: is the form exact, and which text is the answer.

Only generated text is read. What the prompt already holds of the response matters in one way: a
``<think>`` that the prompt opened counts as the response's first tag.
"""

from __future__ import annotations

OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_ANSWER, CLOSE_ANSWER = "<answer>", "</answer>"
TAGS = (OPEN_THINK, CLOSE_THINK, OPEN_ANSWER, CLOSE_ANSWER)
"""All tags, in the order in which a response must have them; matched exactly, case included."""
END_MARKERS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>")
"""Stop tokens as text; left at the end of a completion they make no difference."""


def without_end_markers(text: str) -> str:
    """``text`` without the white space and end markers at its end, however many there are."""
    end = len(text)
    while end:
        if text[end - 1].isspace():
            end -= 1
            continue
        marker = next((m for m in END_MARKERS if text.endswith(m, 0, end)), None)
        if marker is None:
            break
        end -= len(marker)
    return text[:end]


def has_exact_form(completion: str, response_start: str = "") -> bool:
    """Whether each tag stands exactly once, in order, with only white space outside the two blocks.

    ``response_start`` is the part of the response that the prompt holds. From its last ``<think>``
    on it is read as if the model had written it: a completion that lacks the tag because the prompt
    had it is complete, and one that opens it again has it twice. Text before that is ignored.
    """
    _, opened, reasoning = response_start.rpartition(OPEN_THINK)
    given = opened + reasoning if opened else ""
    text = (given + without_end_markers(completion)).strip()
    if any(text.count(tag) != 1 for tag in TAGS):
        return False
    if not (text.startswith(OPEN_THINK) and text.endswith(CLOSE_ANSWER)):
        return False
    _, _, after_reasoning = text.partition(CLOSE_THINK)
    # Exactly one of each tag: if "<answer>" comes first here, the order of all four is right.
    return after_reasoning.lstrip().startswith(OPEN_ANSWER)


def last_answer(completion: str) -> str | None:
    """The text of the last complete answer block after the reasoning closes, or None.

    The reasoning closes at the first ``</think>``. A completion without one is searched as a whole:
    models that were never taught the tag answer after plain reasoning. A block runs from
    ``<answer>`` to the next ``</answer>`` and holds no other ``<answer>``, so the inner one of two
    nested blocks counts; a block that is never closed is none.
    """
    before, closed, after = completion.partition(CLOSE_THINK)
    text = after if closed else before
    last_close = text.rfind(CLOSE_ANSWER)
    last_open = text.rfind(OPEN_ANSWER, 0, max(last_close, 0))
    if last_open < 0:
        return None
    start = last_open + len(OPEN_ANSWER)
    return text[start : text.index(CLOSE_ANSWER, start)]
