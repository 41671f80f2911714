"""Groups, filters' marks, one question through training, and texts too long to send at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.recorded import PROMPT, line, sample, start_run, write_steps

from grpo_zero.dashboard.answers import SHOWN_CHARACTERS, follow, group, groups, question_of, text

LLAMA = (
    "<|start_header_id|>user<|end_header_id|>\n\nHow many?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    folder = start_run(tmp_path / "run", 20)
    write_steps(folder, 0, 20, 20)
    return folder / "samples.jsonl"


def test_groups_have_marks_and_say_whether_all_are_equal(samples: Path) -> None:
    found = groups(samples, 7, "train", 4)
    assert found[0]["question"] == "Make 20 from [2, 3, 7]."
    assert [one["marks"] for one in found] == [
        ["right"] * 4,
        ["wrong"] * 4,
        ["wrong", "right", "wrong", "truncated"],
        ["wrong", "right", "wrong", "truncated"],
    ]
    assert [one["zero_variance"] for one in found] == [True, True, False, False]
    assert groups(samples, 7, "eval", 4) == []


def test_a_group_comes_with_its_answers(samples: Path) -> None:
    found = group(samples, 7, "train", 4, 2)
    assert found["prompt"].startswith("<|im_start|>user")
    answer = found["answers"][1]
    assert (answer["mark"], answer["reward"], answer["advantage"], answer["length"]) == ("right", 1.1, 1.0, 40)
    assert answer["reason"] == "right"
    assert answer["response"].endswith("step 7, answer 1")
    assert group(samples, 7, "train", 4, 9) is None


def test_the_same_question_twice_in_a_row_stays_two_groups(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(line(sample(1, "train", "q", str(number), "right")) for number in range(8)))
    assert [len(one["marks"]) for one in groups(path, 1, "train", 4)] == [4, 4]
    assert [len(one["marks"]) for one in groups(path, 1, "train", None)] == [8]


def test_one_question_through_training(samples: Path) -> None:
    found = follow(samples, [0, 10, 20], 4, 2)
    assert found["question"] == "Make 22 from [4, 3, 7]."
    assert [one["step"] for one in found["history"]] == [0, 10, 20]
    assert [one["answers"][0]["response"].split("\n")[-1] for one in found["history"]] == [
        f"step {step}, answer 0" for step in (0, 10, 20)
    ]
    assert follow(samples, [], 4, 0) is None
    assert follow(samples, [0, 10, 20], 4, 99) is None


def test_a_question_that_has_moved_is_found_by_its_prompt(tmp_path: Path) -> None:
    """A resumed run may evaluate on more problems."""
    path = tmp_path / "samples.jsonl"
    prompts = [PROMPT.format(target=target, numbers="1, 2") for target in range(4)]
    rows = [sample(0, "eval", prompts[index], f"early {index}", "wrong") for index in (2, 3)]
    rows += [sample(5, "eval", prompts[index], f"late {index}", "right") for index in (0, 1, 2, 3)]
    path.write_text("".join(map(line, rows)))
    history = follow(path, [0, 5], 1, 2)["history"]
    assert [one["answers"][0]["response"] for one in history] == ["early 2", "late 2"]
    assert [one["step"] for one in follow(path, [0, 5], 1, 0)["history"]] == [5]


def test_long_texts_come_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    response = "ä" * 1_000_000
    path.write_text(line(sample(1, "train", "q", response, "wrong")))
    [answer] = group(path, 1, "train", 1, 0)["answers"]
    assert answer["characters"] == 1_000_000
    assert len(answer["response"]) == SHOWN_CHARACTERS
    assert text(path, answer["at"], 999_990, 50) == {"text": "ä" * 10, "pieces": None}
    assert text(path, answer["at"] + 1, 0, 50) is None


@pytest.mark.parametrize("value", [None, True, "<b>", [], [[1]], {"a": {}}, float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize("name", sorted(sample(1, "train", "", "", "right").keys() - {"step", "kind"}))
def test_a_damaged_row_reaches_the_page_in_the_types_it_expects(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "samples.jsonl"
    rows = [sample(1, "train", "q", "text", "wrong", 0.5) | {name: value}] * 2
    path.write_text("".join(map(line, rows)))
    found = groups(path, 1, "train", 2)
    assert {type(reward) for one in found for reward in one["rewards"]} <= {float, type(None)}
    for answer in group(path, 1, "train", 2, 0)["answers"]:
        for number in (answer["reward"], answer["advantage"], answer["length"], *answer["parts"].values()):
            assert type(number) in (int, float, type(None))
        assert (type(answer["reason"]), type(answer["response"]), type(answer["is_finished"])) == (str, str, bool)
        json.dumps([found, answer], allow_nan=False)


def test_questions_are_read_out_of_the_templates() -> None:
    assert question_of(PROMPT.format(target=9, numbers="1, 2")) == "Make 9 from [1, 2]."
    assert question_of(LLAMA) == "How many?"
    assert question_of("plain\n") == "plain"
