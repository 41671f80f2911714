"""The document and its text, on answers few enough to count by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from grpo_zero.observe.intervals import success_interval
from grpo_zero.scores.answers import Answer, Decoding
from grpo_zero.scores.groups import Groups, grouped
from grpo_zero.scores.summary import UNNAMED, differences, summary
from grpo_zero.scores.table import sentences, table


def answer(problem: str, index: int, strict: bool, lenient: bool, decoding: Decoding = "sampled") -> Answer:
    return Answer(
        model="m",
        problem=problem,
        difficulty="10 steps" if problem == "d" else "2 steps",
        decoding=decoding,
        sample_index=index,
        prompt="",
        response="",
        correct=strict,
        reward=float(strict),
        parts={"answer": float(strict)},
        notes={"strict": float(strict), "lenient": float(lenient)},
        reason="",
        failed=False,
        finish_reason="length" if problem == "d" else "stop",
        num_tokens=10 + index,
    )


RIGHT = {"a": (1, 1), "b": (1, 0), "c": (0, 0), "d": (0, 0)}
"""Strictly right answers; leniently right are these and all to c."""


def answers(right: dict[str, tuple[int, ...]] = RIGHT, greedy: str = "ab") -> Groups:
    rows = [
        answer(problem, index, bool(hit), bool(hit) or problem == "c")
        for problem, hits in right.items()
        for index, hit in enumerate(hits)
    ]
    rows += [answer(problem, 0, problem in greedy, problem in greedy, "greedy") for problem in right]
    return grouped(rows, "here")


def test_the_numbers() -> None:
    found = summary(answers())
    assert found["num_problems"] == 4
    sampled = found["sampled"]
    assert sampled["num_samples"] == 2
    assert sampled["success"] == success_interval([[True, True], [True, False], [False] * 2, [False] * 2])._asdict()
    assert {k: facts["mean"] for k, facts in sampled["pass_at"].items()} == pytest.approx({"1": 3 / 8, "2": 1 / 2})
    assert {name: facts["mean"] for name, facts in sampled["notes"].items()} == {"strict": 3 / 8, "lenient": 5 / 8}
    assert sampled["notes"]["strict"] == sampled["success"]
    assert (sampled["reward"], sampled["parts"]) == (3 / 8, {"answer": 3 / 8})
    assert (sampled["length"], sampled["truncated_share"], sampled["failed_share"]) == (10.5, 0.25, 0.0)
    assert found["greedy"]["success"]["mean"] == 0.5
    assert "pass_at" not in found["greedy"]
    classes = found["sampled"]["by_difficulty"]
    assert list(classes) == ["2 steps", "10 steps"], "by number, not by letter"
    assert [facts["num_problems"] for facts in classes.values()] == [3, 1]
    assert [facts["success"]["mean"] for facts in classes.values()] == [0.5, 0.0]


def test_no_difficulty_no_classes_and_some_without_count_apart() -> None:
    plain = grouped([replace(answer(p, 0, True, True), difficulty=None) for p in "ab"], "here")
    assert summary(plain)["sampled"]["by_difficulty"] == {}
    mixed = grouped([answer("a", 0, True, True), replace(answer("b", 0, True, True), difficulty=None)], "here")
    assert list(summary(mixed)["sampled"]["by_difficulty"]) == ["2 steps", UNNAMED]


def test_answers_without_a_verdict_count_as_wrong_and_have_no_reward() -> None:
    failed = replace(answer("b", 0, False, False), reward=math.nan, parts={}, notes={}, failed=True)
    found = summary(grouped([answer("a", 0, True, True), failed], "here"))["sampled"]
    assert found["success"]["mean"] == found["notes"]["strict"]["mean"] == 0.5
    assert (found["reward"], found["failed_share"]) == (1.0, 0.5)
    assert "verification failed   50.0 %" in table("m", {"num_problems": 2, "sampled": found})


def test_a_note_that_is_no_share_has_no_interval() -> None:
    rows = [replace(answer(p, 0, True, True), notes={"tries": 3.0 + (p == "b")}) for p in "ab"]
    found = summary(grouped(rows, "here"))
    assert found["sampled"]["notes"] == {"tries": {"mean": 3.5}}
    assert ["tries", "3.500"] in [line.split() for line in table("m", found).splitlines()]


def test_the_table() -> None:
    lines = table("the model", summary(answers())).splitlines()
    assert lines[0] == "the model: 4 problems (95 % intervals over problems)"
    assert lines[1].split("  ")[-1] == "sampled, 2 each"
    start = {line.split("  ")[0] or line.split("  ")[1]: line for line in lines}
    assert "50.0 % (15.0 to 85.0)" in start["success"], "Wilson's for 2 of 4"
    assert "37.5 %" in start["success"]
    assert "62.5 %" in start["lenient"]
    assert start["pass@2"].split()[1] == "-", "greedy has none"
    assert "25.0 %" in start["truncated"]
    assert "10 steps (1)" in start
    assert [line.index("%") for line in lines[2:5]] == [lines[2].index("%")] * 3, "in columns"
    assert all(line == line.rstrip() for line in lines)


def test_differences_and_their_sentences() -> None:
    problems = "abcdefgh"
    better = answers(dict.fromkeys(problems, (1, 1)), greedy="abcdef")
    worse = answers(dict.fromkeys(problems, (0, 0)), greedy="abcdefg")
    found = differences(better, worse)
    # Eight problems all one way: p = 2 / 2^8. One of one: p = 1.
    assert found["sampled"]["p_value"] == pytest.approx(2 / 256)
    assert (found["sampled"]["mean"], found["sampled"]["num_better"], found["sampled"]["num_worse"]) == (1.0, 8, 0)
    assert (found["greedy"]["mean"], found["greedy"]["p_value"]) == (-1 / 8, 1.0)
    greedy, sampled = sentences("A", "B", found, num_samples=2)
    assert sampled.startswith("sampled: A is 100.0 points above B (95 %: +")
    assert "beyond chance (p = 0.0078, exact sign-flip test over problems; better on 8 problems, worse on 0)" in sampled
    assert greedy.startswith("greedy: A is 12.5 points below B")
    assert "within chance (p = 1, McNemar's exact test; better on 0 problems, worse on 1)" in greedy
    mixed = differences(answers(greedy="a"), answers(dict.fromkeys("abcd", (1,))))
    assert "sign-flip" in sentences("A", "B", mixed, 2)[1], "two answers against one are not McNemar's"
    assert "level with B" in sentences("A", "B", differences(better, better), 2)[0]
