"""Whatever a model writes, the verifier answers: no exception, no output, one of four rewards."""

import contextlib
import io
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.tasks.countdown import CountdownTask

TASK = CountdownTask()
PROBLEM = TASK.problem({"nums": [3, 3, 8, 8], "target": 24})
_SIGNS = [*"389+-*/()=.<> \n", "**", "//", "\u00d7", "\u00f7", "\u2212", "\u00b2"]
_WORDS = ["<think>", "</think>", "<answer>", "</answer>", "<|im_end|>", "8/(3-8/3)"]
_PIECES = st.lists(st.sampled_from(_WORDS + _SIGNS) | st.text(max_size=3), max_size=30).map("".join)


@settings(deadline=None, max_examples=300)
@given(
    st.text() | _PIECES | _PIECES.map(lambda text: f"a</think><answer>{text}</answer>"),
    st.booleans(),
)
def test_total_and_quiet(text: str, finished: bool) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        verdict = TASK.verify(PROBLEM, text, finished)
    assert out.getvalue() == ""
    assert verdict.reward in {0.0, 0.1, 1.0, 1.1}
    assert verdict.reward == sum(verdict.parts.values())
    assert verdict.correct is (verdict.parts["answer"] == 1.0)
    assert verdict.correct is (verdict.reason == "right")
    assert "\n" not in verdict.reason


def test_long_texts_are_quick() -> None:
    pieces = (
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "<|im_end|>",
        "(",
        "<answer>(",
        " ",
        "9",
    )
    start = time.perf_counter()
    for piece in pieces:
        TASK.verify(PROBLEM, piece * 20_000)
        TASK.verify(PROBLEM, f"</think><answer>{piece * 20_000}</answer>")
    assert (time.perf_counter() - start) / (2 * len(pieces)) < 0.25
