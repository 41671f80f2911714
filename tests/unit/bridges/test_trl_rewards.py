"""Reward functions in TRL's contract pay, together, what the task's verifier pays."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from grpo_zero.bridges.trl import dataset, prepare_tokenizer, reward_functions
from grpo_zero.bridges.trl.rewards import Judge, PartReward, stop_ids
from grpo_zero.errors import UserError
from grpo_zero.tasks import Task, load_task
from grpo_zero.tasks.worker import IsolatedTask
from grpo_zero.text.tokenizer import Tokenizer
from grpo_zero.types import Verdict

EMBEDDED = Path(__file__).parents[3] / "grpo_zero" / "embedded" / "countdown-tiny"
ROWS = [{"nums": [3, 5, 7], "target": 22}, {"nums": [2, 4], "target": 8}]
TEXTS = [
    "3*5 is 15</think>\n<answer>3*5+7</answer>",
    "no idea",
    "so</think>\n<answer>2*4+1</answer>",
    "<answer>2*4</answer>",
]
ANSWERED = [ROWS[0], ROWS[0], ROWS[1], ROWS[1]]
OWN = """
def rows():
    return [{"n": n} for n in range(8)]

def prompt(row):
    return f"Say {row['n']}."

def verify(row, completion):
    if completion == "crash":
        raise RuntimeError("no")
    if completion == "none":
        return None
    if completion == "extra":
        return {"first": 1.0, "third": 1.0}
    return {"first": 0.25, "second": 1.0} if completion == str(row["n"]) else {"first": 0.0}

def example(row):
    return str(row["n"])
"""


def functions_of(task: Task, rows: list[dict[str, Any]], **options: Any) -> tuple[list[PartReward], Any]:
    tokenizer = prepare_tokenizer(str(EMBEDDED), task)
    return reward_functions(task, tokenizer, dataset(task, rows), **options), tokenizer


def call(functions: list[PartReward], texts: list[Any], rows: list[dict[str, Any]], **more: Any) -> np.ndarray:
    """``[answers, functions]``, None as NaN."""
    columns = {"prompts": [[] for _ in texts], "completions": texts, "row": [json.dumps(row) for row in rows], **more}
    return np.array([[math.nan if r is None else r for r in function(**columns)] for function in functions]).T


@pytest.mark.parametrize("name", ["countdown", "gsm8k"])
def test_parts_sum_to_our_reward(name: str, shared_data: Path) -> None:
    """On answers of real models."""
    task = load_task(name)
    if name == "countdown":
        rows, texts = ANSWERED, TEXTS
    else:
        lines = (shared_data / "gsm8k" / "example_model_solutions.jsonl").read_text().splitlines()[:50]
        solved = [json.loads(line) for line in lines]
        pairs = [(row["ground_truth"], row["6b_finetuning"]["solution"]) for row in solved]
        texts = [text.replace("A:", "####") for pair in pairs for text in pair]
        rows = [{"question": row["question"], "answer": texts[2 * i]} for i, row in enumerate(solved) for _ in "ab"]
    functions, _ = functions_of(task, rows)
    assert [function.__name__ for function in functions] == ["format", "answer"]
    verdicts = [task.verify(task.problem(row), text) for row, text in zip(rows, texts, strict=True)]
    expected = [verdict.reward for verdict in verdicts]
    assert len(set(expected)) > 1
    np.testing.assert_allclose(call(functions, texts, rows).sum(1), expected)
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    np.testing.assert_allclose(call(functions, chats, rows).sum(1), expected)
    logged: dict[str, float] = {}
    shown: dict[str, list[str]] = {}
    call(functions, texts, rows, log_metric=logged.__setitem__, log_extra=shown.__setitem__, trainer_state=None)
    assert logged.pop("success") == pytest.approx(np.mean([verdict.correct for verdict in verdicts]))
    assert logged.pop("failed_share") == 0
    assert logged == {f"note/{n}": np.mean([v.notes[n] for v in verdicts]) for n in verdicts[0].notes}
    assert shown == {"verdict": [verdict.reason for verdict in verdicts]}


def test_text_and_end_are_those_of_our_trainer() -> None:
    """From the ids: special tokens stay in the text but for the one that ends it, and a cut answer is known as cut."""
    task = load_task("gsm8k")
    _, tokenizer = functions_of(task, [{"question": "1+1?", "answer": "#### 2"}])
    ours = Tokenizer.from_folder(EMBEDDED)
    judge = Judge(task, tokenizer, stop_ids(tokenizer))
    assert judge.stop_ids == ours.stop_ids
    more = stop_ids(tokenizer, transformers.GenerationConfig(eos_token_id=[7, 9]))
    assert more == ours.stop_ids | {7, 9}
    assert stop_ids(tokenizer, transformers.GenerationConfig(eos_token_id=7)) == ours.stop_ids | {7}
    assert stop_ids(tokenizer, transformers.GenerationConfig()) == ours.stop_ids
    rng = np.random.default_rng(0)
    ended = Counter()
    for ids in [rng.integers(len(tokenizer), size=rng.integers(1, 6)).tolist() for _ in range(300)]:
        for answer in (ids, [*ids, tokenizer.eos_token_id], [*ids, min(ours.stop_ids)]):
            is_finished = answer[-1] in ours.stop_ids
            assert judge._decoded(answer) == (ours.decode_completion(answer), is_finished)
            ended[is_finished] += 1
    assert min(ended.values()) > 200


def test_a_number_at_a_cut_end_is_none() -> None:
    """The strict rule of GSM8K needs to know whether the length limit cut an answer."""
    row = {"question": "10+8?", "answer": "#### 18"}
    functions, tokenizer = functions_of(load_task("gsm8k"), [row])
    cut = tokenizer("So #### 18", add_special_tokens=False)["input_ids"]
    ids = [cut, [*cut, tokenizer.eos_token_id]]
    paid = call(functions, ["So #### 18"] * 2, [row] * 2, completion_ids=ids)
    np.testing.assert_allclose(paid.sum(1), [0.0, 1.1])


@pytest.fixture
def own_file(tmp_path: Path) -> str:
    (tmp_path / "own_for_trl.py").write_text(OWN)
    return str(tmp_path / "own_for_trl.py")


def test_a_task_of_ones_own(own_file: str) -> None:
    """Parts are found by the task's example; what fails or gets no reward is None in every function."""
    task = load_task(own_file)
    functions, _ = functions_of(task, [{"n": 7}])
    assert [function.__name__ for function in functions] == ["first", "second"]
    logged: dict[str, float] = {}
    paid = call(functions, ["7", "8", "crash", "none"], [{"n": 7}] * 4, log_metric=logged.__setitem__)
    nan = math.nan
    np.testing.assert_equal(paid, [[0.25, 1.0], [0.0, nan], [nan, nan], [nan, nan]])
    assert logged == {"success": 0.25, "failed_share": 0.25}
    with pytest.raises(UserError, match=r"pays for third, but the reward functions were made for first, second"):
        call(functions, ["extra"], [{"n": 7}])
    named, _ = functions_of(task, [{"n": 7}], parts=["first", "second", "third"])
    np.testing.assert_equal(call(named, ["extra"], [{"n": 7}]), [[1.0, nan, 1.0]])


def test_a_verifier_in_processes_of_its_own(own_file: str) -> None:
    make = partial(load_task, own_file)
    task = IsolatedTask(make(), make, timeout_s=30.0, num_workers=1)
    try:
        functions, _ = functions_of(task, [{"n": 7}])
        np.testing.assert_equal(call(functions, ["7", "crash"], [{"n": 7}] * 2), [[0.25, 1.0], [math.nan, math.nan]])
    finally:
        task.close()


def test_an_answer_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task("countdown")
    functions, _ = functions_of(task, ROWS)
    seen: list[str] = []
    verify = task.verify

    def counting(problem: Any, completion: str, finished: bool = True) -> Verdict:
        seen.append(completion)
        return verify(problem, completion, finished)

    monkeypatch.setattr(task, "verify", counting)
    first = call(functions, TEXTS, ANSWERED)
    assert seen == TEXTS
    # The same list object with other content is another batch.
    texts = list(TEXTS)
    texts[1] = TEXTS[0]
    second = call(functions, texts, ANSWERED)
    assert seen == TEXTS + texts
    assert second[1].tolist() == first[0].tolist()


def test_prompts_without_the_response_start_are_refused() -> None:
    task = load_task("countdown")
    plain = transformers.PreTrainedTokenizerFast.from_pretrained(EMBEDDED)
    with pytest.raises(UserError, match=r"begins every answer with '<think>'.*prepare_tokenizer"):
        reward_functions(task, plain, dataset(task, ROWS))


def test_another_dataset_is_refused() -> None:
    functions, _ = functions_of(load_task("countdown"), ROWS)
    with pytest.raises(UserError, match=r"no column 'row': make it with"):
        functions[0](prompts=["?"], completions=["!"], nums=[[1]])


def test_unknown_parts_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "mute_for_trl.py"
    file.write_text(OWN.replace("def example", "def unused").replace('{"first": 0.0}', "None"))
    task = load_task(str(file))
    with pytest.raises(UserError, match=r"gave no reward to a first answer.*parts="):
        functions_of(task, [{"n": 7}])
    functions, _ = functions_of(task, [{"n": 7}], parts=["first", "second"])
    np.testing.assert_equal(call(functions, ["7"], [{"n": 7}]), [[0.25, 1.0]])
