"""What a warm start learns from: prompt and response from a file, or generated searches, as training rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.randomness import stream
from grpo_zero.tasks.search_text import search_response
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.policy import Policy
from grpo_zero.train.problems import ProblemSource, endless_order


def generated_rows(policy: Policy, problems: ProblemSource, config: Config, step: int) -> list[TrainRow]:
    """Search demonstrations for the problems of one step, written anew each time from the seed tree."""
    sft, seed = config.sft, config.training.random_seed
    rows = []
    for index, item in enumerate(problems.draw(seed, step, sft.batch_size)):
        row = item.problem.row
        if "nums" not in row:
            raise UserError("sft.path is generate, which writes demonstrations for Countdown alone: give a jsonl file.")
        rng = stream(seed, "sft", step, index)
        text = search_response(
            row["nums"],
            row["target"],
            rng,
            tries=sft.tries,
            give_up=sft.give_up,
            tries_skew=sft.tries_skew,
            focus=sft.focus,
            max_value=sft.max_value,
            response_start=item.problem.response_start,
        )
        rows.append(_train_row(policy, index, item.prompt_ids, text))
    return rows


def read_demonstrations(path: Path) -> list[dict[str, str]]:
    """Rows ``{"prompt": ..., "response": ...}`` of a jsonl file.

    Raises:
        UserError: no such file, a line that is no such row, or no rows at all.
    """
    if not path.is_file():
        raise UserError(
            f"sft.path is {str(path)!r}, but there is no such file: give a jsonl file with prompt and response, or generate."
        )
    try:
        # Not splitlines: a text may hold U+2028 and its like as they are.
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}): save it as UTF-8.") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"Line {number} of {path} is not JSON ({error}): each line must be an object with prompt and response."
            ) from error
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("prompt", "response")):
            raise UserError(f"Line {number} of {path} must be an object with the texts prompt and response.")
        rows.append(row)
    if not rows:
        raise UserError(f"{path} holds no rows: each line must be an object with prompt and response.")
    return rows


def tokenize_demonstrations(
    policy: Policy, demonstrations: Sequence[dict[str, str]], config: Config, response_start: str
) -> list[TrainRow]:
    """Every demonstration as a training row of a group of its own.

    The prompt is a user message after ``data.system_prompt``. ``response_start``, the task's, ends the prompt, as it does in
    GRPO; a response that begins with it is freed of it.

    Raises:
        UserError: a demonstration longer than the model's context.
    """
    system_prompt = config.data.system_prompt
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    rows = []
    for index, demonstration in enumerate(demonstrations):
        messages = [*system, {"role": "user", "content": demonstration["prompt"]}]
        prompt_ids = policy.tokenizer.encode(policy.template.render(messages) + response_start)
        response = demonstration["response"].removeprefix(response_start)
        rows.append(_train_row(policy, index, prompt_ids, response))
    return rows


def demonstration_rows(demonstrations: Sequence[TrainRow], config: Config, step: int) -> list[TrainRow]:
    """The demonstrations of one step; each pass over them has an order of its own."""
    size = config.sft.batch_size
    order = islice(endless_order(config.training.random_seed, len(demonstrations), (step - 1) * size), size)
    # A step may hold a row twice, at the seam of two passes: its place in the step is its group.
    return [replace(demonstrations[row_index], group=index) for index, row_index in enumerate(order)]


def _train_row(policy: Policy, group: int, prompt_ids: Sequence[int], response: str) -> TrainRow:
    """One demonstration: its response and the stop id that ends a turn, every token with weight 1."""
    response_ids = [*policy.tokenizer.encode(response), policy.tokenizer.end_of_turn_id]
    num_tokens, context = len(prompt_ids) + len(response_ids), policy.decoder.spec.context
    if num_tokens > context:
        raise UserError(
            f"A demonstration has {num_tokens} tokens, but the model was made for {context}: leave it out or shorten it; "
            f"it begins {response[:60]!r}."
        )
    return TrainRow(group, prompt_ids, response_ids, 1.0)
