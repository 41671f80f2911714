"""The format mark (cases F01 to F12) and which text is the answer."""

import pytest

from grpo_zero.tasks.tags import END_MARKERS, has_exact_form, last_answer, without_end_markers

RIGHT = "<think>one\ntwo</think>\n<answer>1+2</answer>"


@pytest.mark.parametrize(
    ("response_start", "completion", "has_form"),
    [
        pytest.param("", RIGHT, True, id="plain"),
        pytest.param("", "<think>a\n\nb\nc</think>\n\n<answer>\n1\n</answer>\n", True, id="F01-lines"),
        pytest.param("", RIGHT + "\n</answer>", False, id="F02-doubled-close"),
        pytest.param("", "<think>x</tool><answer>y</answer>", False, id="F05-mismatched"),
        pytest.param("", "<think>3 < 4 > 2</think><answer>1</answer>", True, id="F07-less-than"),
        pytest.param("<think>", "why</think><answer>1</answer>", True, id="F08-given-by-prompt"),
        pytest.param("<think>\n", "why</think><answer>1</answer>", True, id="F08-given-with-newline"),
        pytest.param("Let me see.\n<think>", "a</think><answer>1</answer>", True, id="F08-lead-in"),
        pytest.param("<think>", RIGHT, False, id="F08-opened-again"),
        pytest.param("", "why</think><answer>1</answer>", False, id="F08-never-opened"),
        pytest.param("<think>\n\n</think>\n\n", "<answer>1</answer>", True, id="F08-empty-block"),
        pytest.param("", "<think>a</think><Answer>1</Answer>", False, id="F12-case"),
        pytest.param("", "<think>a</think><answer >1</answer >", False, id="F12-space"),
        pytest.param("", f"```\n{RIGHT}\n```", False, id="F12-fence"),
        pytest.param("", "<think>a</think>so <answer>1</answer>", False, id="text-between"),
        pytest.param("", "well <think>a</think><answer>1</answer>", False, id="text-before"),
        pytest.param("", RIGHT + " done", False, id="text-after"),
        pytest.param("", "<answer>1</answer><think>a</think>", False, id="wrong-order"),
        pytest.param("", "<think><answer>1</think></answer>", False, id="crossed"),
        pytest.param("", "<think>a</think><answer>1</answer><answer>2</answer>", False, id="two"),
        pytest.param("", "<think>a</think><answer>1", False, id="unclosed"),
        pytest.param("", "<think>a /think> b</think><answer>1 /answer> 2</answer>", True, id="pieces-of-tags"),
        pytest.param("", f"\n {RIGHT}", True, id="space-before"),
        pytest.param("Let me see. ", RIGHT, True, id="F08-prompt-without-tag"),
        pytest.param("<think>a<think>b", "c</think><answer>1</answer>", True, id="F08-the-last-of-two"),
        pytest.param(f"{RIGHT}\n", "", True, id="all-given"),
        pytest.param("", "", False, id="empty"),
        pytest.param("<think>", "", False, id="empty-after-think"),
    ],
)
def test_exact_form(response_start: str, completion: str, has_form: bool) -> None:
    assert has_exact_form(completion, response_start) is has_form


@pytest.mark.parametrize("marker", END_MARKERS)
@pytest.mark.parametrize("completion", [RIGHT, RIGHT + " done"], ids=["exact", "inexact"])
def test_F04_end_markers_make_no_difference(marker: str, completion: str) -> None:
    expected = has_exact_form(completion)
    for ending in (marker, f"\n{marker}\n", marker * 2, marker + "<|endoftext|>"):
        assert has_exact_form(completion + ending) is expected


@pytest.mark.parametrize("marker", ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>"])
def test_every_end_marker_is_known(marker: str) -> None:
    assert without_end_markers(marker) == ""
    assert without_end_markers(f"a{marker} \n\n{marker}\t") == "a"
    assert has_exact_form(f"{RIGHT}{marker} \n\n")
    assert not has_exact_form(f"{RIGHT}{marker[:-1]}")


def test_an_end_marker_inside_the_text_is_text() -> None:
    assert not has_exact_form("<think>a</think><|im_end|><answer>1</answer>")


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("a</think><answer>1</answer>", "1"),
        ("a</think><answer>1</answer> no: <answer>2</answer>", "2"),
        ("<answer>draft</answer></think><answer>1</answer>", "1"),
        ("<answer>draft</answer></think>", None),
        ("no reasoning tags <answer>1</answer>", "1"),
        ("</think><answer>1</answer><answer>2", "1"),
        ("</think><answer>1", None),
        ("</think></answer><answer>", None),
        ("</think></answer><answer>1</answer></answer>", "1"),
        ("</think><answer><answer>1</answer></answer>", "1"),
        ("</think><answer></answer>", ""),
        ("</think><answer>\n1\n</answer>", "\n1\n"),
        ("a</think><answer>1</answer></think>", "1"),
        ("a /think> <answer>1</answer></think>", None),
        ("a</think><answer>1 /answer> 2</answer>", "1 /answer> 2"),
        ("", None),
    ],
)
def test_last_answer(completion: str, answer: str | None) -> None:
    assert last_answer(completion) == answer
