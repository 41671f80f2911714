"""Prompts for TRL are token for token those of our trainer, and rows come back from the dataset as they were."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import transformers

from grpo_zero.bridges.trl import dataset, prepare_tokenizer
from grpo_zero.errors import UserError
from grpo_zero.tasks import Task, load_task
from grpo_zero.text.chat import ChatTemplate, prompt_ids
from grpo_zero.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[3]
EMBEDDED = ROOT / "grpo_zero" / "embedded" / "countdown-tiny"
COUNTDOWN = {"nums": [3, 5, 7], "target": 22}
GSM8K = {"question": "Tom has 3 apples and buys 4.\nHow many?", "answer": "3+4=<<3+4=7>>7\n#### 7"}
CASES = {
    "countdown": (load_task("countdown"), COUNTDOWN),
    "no start": (load_task("countdown", response_start=""), COUNTDOWN),
    "odd start": (load_task("countdown", response_start='Let\'s "see" {{ x }} \\ für 😀:\n  <think> '), COUNTDOWN),
    "gsm8k": (load_task("gsm8k", system_prompt="Be brief."), GSM8K),
    "own": (load_task(str(ROOT / "examples" / "near_miss.py")), COUNTDOWN),
}


def their_ids(tokenizer: Any, questions: Any) -> list[int]:
    """As GRPOTrainer does it: the template with the model's turn opened, nothing added."""
    [prompt] = questions["prompt"]
    ids = tokenizer.apply_chat_template([prompt], add_generation_prompt=True, tokenize=True, return_dict=True)
    return ids["input_ids"][0]


def check(tokenizer: Any, folder: Path, task: Task, row: dict[str, Any], chat_template: str = "auto") -> None:
    ours = Tokenizer.from_folder(folder)
    expected = prompt_ids(ours, ChatTemplate.select(chat_template, ours), task.problem(row))
    prepared = prepare_tokenizer(tokenizer, task, chat_template)
    found = their_ids(prepared, dataset(task, [row]))
    assert found == expected
    assert prepared.decode(found) == ours.decode(expected)


@pytest.mark.parametrize("case", CASES)
def test_prompts_of_the_packaged_model(case: str) -> None:
    check(str(EMBEDDED), EMBEDDED, *CASES[case])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("name", "model"),
    [("qwen2.5", "Qwen2.5-0.5B-Instruct"), ("qwen3", "Qwen3-0.6B"), ("smollm2", "SmolLM2-135M-Instruct")],
)
def test_prompts_of_real_tokenizers(shared_data: Path, tmp_path: Path, name: str, model: str, case: str) -> None:
    """However the tokenizer is opened: these models say their class, and the config its kind."""
    source = shared_data / "tokenizers" / name
    (tmp_path / "tokenizer.json").write_bytes(lzma.decompress((source / "tokenizer.json.xz").read_bytes()))
    (tmp_path / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    (tmp_path / "config.json").write_bytes((shared_data / "configs" / model / "config.json").read_bytes())
    check(str(tmp_path), tmp_path, *CASES[case])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    before = tokenizer.chat_template
    check(tokenizer, tmp_path, *CASES[case])
    assert tokenizer.chat_template == before, "the given tokenizer is left as it was"


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", "  ", "{% if true %}\n{% endif %}\n", "Answer:\n"])
def test_whatever_the_template_ends_with(tmp_path: Path, ending: str) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{% for message in messages %}{{ message.content }}{% endfor %}" + ending, encoding="utf-8")
    check(str(EMBEDDED), EMBEDDED, *CASES["countdown"], str(file))
    check(str(EMBEDDED), EMBEDDED, *CASES["odd start"], str(file))


def test_the_plain_prompt() -> None:
    check(str(EMBEDDED), EMBEDDED, *CASES["countdown"], "plain")


def test_the_start_comes_with_the_models_turn_only() -> None:
    task, row = CASES["countdown"]
    tokenizer = prepare_tokenizer(str(EMBEDDED), task)
    messages = dataset(task, [row])["prompt"][0]
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False).endswith("<think>")
    assert not tokenizer.apply_chat_template(messages, tokenize=False).endswith("<think>")


def test_a_tokenizer_without_a_template() -> None:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(EMBEDDED)
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"has no chat template; give chat_template='plain'"):
        prepare_tokenizer(tokenizer, CASES["gsm8k"][0])
    with pytest.raises(UserError, match=r"'nowhere.jinja' is no file"):
        prepare_tokenizer(tokenizer, CASES["gsm8k"][0], "nowhere.jinja")


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """Rows of different keys and types, which columns of Arrow would make alike."""
    rows = [{"nums": [1, 2], "target": 3, "x": None}, {"nums": [2, 2], "target": 4, "x": {"a": 1.5}, "y": "é"}]
    questions = dataset(load_task("countdown"), rows)
    questions.to_json(tmp_path / "saved.jsonl")
    assert [json.loads(row) for row in questions["row"]] == rows
    saved = [json.loads(line) for line in (tmp_path / "saved.jsonl").read_text().splitlines()]
    assert [json.loads(line["row"]) for line in saved] == rows


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**COUNTDOWN, "when": {1, 2}}, r"can't be written as JSON \(Object of type set"),
        ({**COUNTDOWN, "pair": (1, 2)}, r"comes back from JSON changed: use lists instead of tuples"),
        ({"nums": [1, 1], "target": 99}, r"No expression that uses each of \[1, 1\] once equals 99"),
    ],
)
def test_rows_that_cannot_be_used(row: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dataset(load_task("countdown"), [row])


def test_no_rows() -> None:
    with pytest.raises(UserError, match=r"no rows of the task gsm8k"):
        dataset(load_task("gsm8k"), [])
