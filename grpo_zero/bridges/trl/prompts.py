"""A task's questions as a dataset of TRL's, and a tokenizer that poses them as our trainer does, token for token."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from grpo_zero.errors import UserError
from grpo_zero.tasks import Task
from grpo_zero.text.chat import PLAIN_TEMPLATE

ROW = "row"
"""The column with a question's row as JSON, from which the reward functions pose it again. One text, because columns of
Arrow would give every row the keys and number types of the others."""


def dataset(task: Task, rows: Iterable[Mapping[str, Any]]) -> datasets.Dataset:
    """Columns ``prompt`` (chat messages) and ``row`` (JSON), one question a row, in the order of ``rows``.

    The start of the response is no message; ``prepare_tokenizer`` puts it into the prompt.

    Raises:
        UserError: a row that the task refuses, or one that JSON would change; no rows.
    """
    questions = [{"prompt": [dict(m) for m in task.problem(row).messages], ROW: _as_json(row)} for row in rows]
    if not questions:
        raise UserError(f"There are no rows of the task {task.name} to make a dataset of: give at least one.")
    return datasets.Dataset.from_list(questions)


def prepare_tokenizer(
    tokenizer: str | PreTrainedTokenizerBase, task: Task, chat_template: str = "auto"
) -> PreTrainedTokenizerBase:
    """A tokenizer whose chat template ends every prompt with the start of the task's responses, such as ``<think>``.

    TRL asks for the model's turn after the last message, so what begins that turn has to come from the template. A model
    saved with this tokenizer begins its answers the same way wherever it is used.

    Args:
        tokenizer: a model's folder or hub id, or a tokenizer of transformers, which is copied. The first is opened as its
            tokenizer.json says; ``AutoTokenizer`` gives every Qwen2 model the word splitting of Qwen's own, also the packaged
            one, which then reads its prompts in pieces it has never seen.
        task: has the ``response_start``.
        chat_template: as ``model.chat_template``: ``auto`` (the tokenizer's own), ``plain`` (no roles), or a file.

    Raises:
        UserError: ``auto`` without a template in the tokenizer, or no such file.
    """
    if isinstance(tokenizer, str):
        prepared = PreTrainedTokenizerFast.from_pretrained(tokenizer)
    else:
        prepared = copy.deepcopy(tokenizer)
    # Jinja drops one newline at a template's very end; with more behind it, it would come back.
    source = _source(prepared, chat_template).removesuffix("\n")
    if task.response_start:
        # The plus keeps Jinja from taking spaces before the block; repr is how Jinja writes a text.
        source += f"{{%+ if add_generation_prompt %}}{{{{ {task.response_start!r} }}}}{{% endif %}}"
    prepared.chat_template = source
    return prepared


def require_response_start(tokenizer: PreTrainedTokenizerBase, task: Task) -> None:
    """Raises ``UserError`` where prompts would lack the response start that the verifier counts on."""
    posed = [{"role": "user", "content": "?"}]
    prompt = tokenizer.apply_chat_template(posed, add_generation_prompt=True, tokenize=False)
    if not str(prompt).endswith(task.response_start):
        raise UserError(
            f"The task {task.name} begins every answer with {task.response_start!r}, but this tokenizer's prompts don't: give "
            "prepare_tokenizer(tokenizer, task) to reward_functions and to GRPOTrainer."
        )


def _source(tokenizer: PreTrainedTokenizerBase, chat_template: str) -> str:
    if chat_template == "plain":
        return PLAIN_TEMPLATE
    if chat_template != "auto":
        if not Path(chat_template).is_file():
            raise UserError(
                f"The chat template {chat_template!r} is no file; expected auto, plain, or the path of a Jinja template."
            )
        return Path(chat_template).read_text(encoding="utf-8")
    own = tokenizer.chat_template
    if isinstance(own, dict):  # several named ones
        own = own.get("default")
    if not own:
        raise UserError(
            f"The tokenizer {tokenizer.name_or_path!r} has no chat template; give chat_template='plain' for a prompt without "
            "roles (right for base models), or a file with one."
        )
    return own


def _as_json(row: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(row, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"The row {_shown(row)} can't be written as JSON ({error}): keep to what JSON has.") from error
    if json.loads(text) != row:
        raise UserError(
            f"The row {_shown(row)} comes back from JSON changed: use lists instead of tuples, and texts as keys of dicts."
        )
    return text


def _shown(row: object) -> str:
    text = repr(row)
    return text if len(text) <= 120 else text[:117] + "..."
