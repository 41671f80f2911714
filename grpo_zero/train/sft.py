"""Warm start: supervised training on prompt and response, on the same packed path as GRPO."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from grpo_zero.config import Config, SftConfig
from grpo_zero.errors import UserError
from grpo_zero.randomness import stream
from grpo_zero.tasks.search_text import search_response
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.policy import Policy
from grpo_zero.train.problems import ProblemSource


def learning_rate_at(step: int, config: SftConfig) -> float:
    """Linear warm-up, then a half cosine down to ``final_learning_rate_fraction``; ``step`` counts from 1."""
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, config.max_steps - config.warmup_steps)
    floor = config.final_learning_rate_fraction
    return config.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def generated_rows(policy: Policy, problems: ProblemSource, config: Config, step: int) -> list[TrainRow]:
    """Search demonstrations for the problems of one step, written anew each time from the seed tree."""
    sft, seed = config.sft, config.training.random_seed
    rows = []
    for index, item in enumerate(problems.draw(seed, step, sft.batch_size)):
        row = item.problem.row
        rng = stream(seed, "sft", step, index)
        text = search_response(row["nums"], row["target"], rng, tries=sft.tries, give_up=sft.give_up)
        rows.append(_train_row(policy, index, item.prompt_ids, text))
    return rows


def read_demonstrations(path: Path) -> list[dict[str, str]]:
    """Rows ``{"prompt": ..., "response": ...}`` of a jsonl file.

    Raises:
        UserError: no such file, a line that is no such row, or no rows at all.
    """
    if not path.is_file():
        raise UserError(f"sft.path is {str(path)!r}, but there is no such file: give a jsonl file with prompt and response, or generate.")
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"Line {number} of {path} is not JSON ({error.msg}): each line must be an object with prompt and response.") from error
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("prompt", "response")):
            raise UserError(f"Line {number} of {path} must be an object with the texts prompt and response.")
        rows.append(row)
    if not rows:
        raise UserError(f"{path} holds no rows: each line must be an object with prompt and response.")
    return rows


def demonstration_rows(policy: Policy, demonstrations: Sequence[dict[str, str]], config: Config, step: int) -> list[TrainRow]:
    """The demonstrations of one step; each pass over them has an order of its own. The prompt is a user message."""
    seed, size = config.training.random_seed, config.sft.batch_size
    rows = []
    for index in range(size):
        epoch, offset = divmod((step - 1) * size + index, len(demonstrations))
        order = stream(seed, "order", epoch).permutation(len(demonstrations))
        row = demonstrations[order[offset]]
        prompt = policy.template.render([{"role": "user", "content": row["prompt"]}])
        rows.append(_train_row(policy, index, policy.tokenizer.encode(prompt), row["response"]))
    return rows


def _train_row(policy: Policy, group: int, prompt_ids: Sequence[int], response: str) -> TrainRow:
    """One demonstration: its response and the stop id that ends a turn, every token with weight 1."""
    return TrainRow(group, prompt_ids, [*policy.tokenizer.encode(response), policy.tokenizer.end_of_turn_id], 1.0)
