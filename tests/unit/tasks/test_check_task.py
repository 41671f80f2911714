"""check-task names each fault of a task with the sample at fault, and finds none where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_zero.cli import main
from grpo_zero.commands.check_task import check_task
from grpo_zero.tasks import load_task
from grpo_zero.tasks.countdown_generate import generate_rows

EXAMPLES = Path(__file__).parents[3] / "examples"
TASK = """
import itertools, math, time
counter = itertools.count()
def rows():
    return [{{"n": n}} for n in range(9)]
def prompt(row):
    return {prompt}
def verify(row, completion):
    return {verify}
def example(row):
    return {example}
"""
PLAIN = {"prompt": "f\"Say {row['n']}\"", "verify": "completion.strip() == str(row['n'])", "example": "str(row['n'])"}
FAULTS = {
    "none": ({}, ""),
    "nan": ({"verify": "math.nan"}, "verify returned nan, no finite number, for the empty text"),
    "raises": ({"verify": "int(completion)"}, "verify raised ValueError"),
    "pays everything": ({"verify": "1.0"}, "verify() finds the empty text right (reward 1)"),
    "pays the prompt": ({"verify": "str(row['n']) in completion"}, "verify() finds the prompt itself right"),
    "rejects the example": ({"example": "'x' + str(row['n'])"}, "verify() does not find example() right: 'x0'"),
    "example raises": ({"example": "1 / 0"}, "example() raised ZeroDivisionError"),
    "another word each time": ({"verify": "next(counter) / 1e6"}, "something else the second time"),
    "slow": ({"verify": "time.sleep(0.11)"}, "verify() took 0.1 s"),
    "one question": ({"prompt": "'Say it'"}, "all questions are the same"),
}


def found(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "my_task.py"
    path.write_text(text)
    task = load_task(str(path))
    return check_task(task, task.load("", test_size=0)[0][:2])


@pytest.mark.parametrize(("changes", "words"), FAULTS.values(), ids=FAULTS)
def test_faults(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    sentences = found(tmp_path, TASK.format(**PLAIN | changes))
    if not words:
        assert sentences == []
    assert words in "\n".join(sentences)


def test_a_constant_reward_asks_for_an_example(tmp_path: Path) -> None:
    text = TASK.format(**PLAIN | {"verify": "0.0"}).partition("def example")[0]
    assert any("gets the reward 0: add example(row)" in sentence for sentence in found(tmp_path, text))


def test_bundled_tasks_have_no_faults() -> None:
    task = load_task("countdown")
    rows = generate_rows(5, seed=1, held_out=False, counts=(3, 3), numbers=(1, 20), targets=(5, 60))
    assert check_task(task, rows) == []
    gsm8k = load_task("gsm8k")
    assert check_task(gsm8k, [{"question": f"q{i}", "answer": f"#### {i}"} for i in (3, 4)]) == []


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check-task", "--task", str(EXAMPLES / "near_miss.py")]) == 0
    assert "nothing wrong was found" in capsys.readouterr().out
    path = tmp_path / "my_task.py"
    path.write_text(TASK.format(**PLAIN | {"verify": "1.0"}))
    assert main(["check-task", "--task", str(path), "data.test_size=2"]) == 2
    output = capsys.readouterr()
    assert "wrong: verify() finds the empty text right" in output.out
    assert "mend them" in output.err
    assert output.err.count("\n") == 1


def test_the_command_comes_back_from_a_verifier_that_hangs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my_task.py"
    path.write_text(TASK.format(**PLAIN | {"verify": "time.sleep(60)"}))
    settings = ["data.test_size=2", "data.verify_timeout_s=0.3"]
    assert main(["check-task", "--task", str(path), *settings]) == 2
    assert "wrong: verify took longer than 0.3 s, for the empty text" in capsys.readouterr().out


def test_the_command_tries_the_example_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my_task.py"
    path.write_text(TASK.format(**PLAIN | {"example": "'x' + str(row['n'])"}))
    assert main(["check-task", "--task", str(path), "data.test_size=2"]) == 2
    assert "wrong: verify() does not find example() right: 'x0'" in capsys.readouterr().out
