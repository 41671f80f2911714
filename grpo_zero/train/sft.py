"""Warm start: supervised training on prompt and response, on the same packed path as GRPO."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from grpo_zero.config import Config, SftConfig
from grpo_zero.errors import UserError
from grpo_zero.observe.console import Console
from grpo_zero.observe.record import StepRecord
from grpo_zero.randomness import stream
from grpo_zero.rollout.engine import Engine
from grpo_zero.tasks.search_text import search_response
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.checkpoints import save_model
from grpo_zero.train.evaluate import evaluate
from grpo_zero.train.policy import Policy, load_policy
from grpo_zero.train.problems import ProblemSource, endless_order, load_rows, make_task
from grpo_zero.train.run import make_optimizer, set_recompute
from grpo_zero.train.session import Recorder, new_run_folder
from grpo_zero.train.update import update


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
        text = search_response(
            row["nums"], row["target"], rng, tries=sft.tries, give_up=sft.give_up, max_value=sft.max_value
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
        except json.JSONDecodeError as error:
            raise UserError(
                f"Line {number} of {path} is not JSON ({error.msg}): each line must be an object with prompt and response."
            ) from error
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("prompt", "response")):
            raise UserError(f"Line {number} of {path} must be an object with the texts prompt and response.")
        rows.append(row)
    if not rows:
        raise UserError(f"{path} holds no rows: each line must be an object with prompt and response.")
    return rows


def demonstration_rows(
    policy: Policy, demonstrations: Sequence[dict[str, str]], config: Config, step: int
) -> list[TrainRow]:
    """The demonstrations of one step; each pass over them has an order of its own. The prompt is a user message."""
    seed, size = config.training.random_seed, config.sft.batch_size
    rows = []
    order = endless_order(seed, len(demonstrations), (step - 1) * size)
    for index, row_index in enumerate(islice(order, size)):
        row = demonstrations[row_index]
        prompt = policy.template.render([{"role": "user", "content": row["prompt"]}])
        rows.append(_train_row(policy, index, policy.tokenizer.encode(prompt), row["response"]))
    return rows


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


def warm_start(config: Config) -> Path:
    """Train on demonstrations and write the model to ``sft.output``.

    Returns:
        The model folder.

    Raises:
        UserError: anything the user can mend, before training starts.
    """
    sft, training = config.sft, config.training
    output = Path(sft.output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"sft.output is {str(output)!r}, which already exists: give another folder or remove it.")
    max_new_tokens = config.evaluation.max_gen_len or training.max_gen_len
    max_tokens = training.max_prompt_len + max_new_tokens if sft.eval_interval else None
    policy = load_policy(config.model, init_seed=training.random_seed, max_tokens=max_tokens)
    set_recompute(policy, training)
    task = make_task(config)
    train_rows, test_rows, _ = load_rows(config) if sft.path == "generate" or sft.eval_interval else ([], [], {})
    if sft.path == "generate":
        problems = ProblemSource(task, policy, train_rows, training.max_prompt_len, "training")
        rows_of_step = partial(generated_rows, policy, problems, config)
    else:
        rows_of_step = partial(demonstration_rows, policy, read_demonstrations(Path(sft.path)), config)
    held_out = []
    if sft.eval_interval:
        held_out = ProblemSource(task, policy, test_rows, training.max_prompt_len, "held-out").first(
            config.evaluation.num_problems
        )
    optimizer = make_optimizer(policy, training)
    engine = Engine(policy.decoder, policy.tokenizer.stop_ids, policy.has_token_V, training.num_slots)
    folder = new_run_folder(config)
    recorder = Recorder(folder, Console(sft.max_steps), policy)
    try:
        for step in range(1, sft.max_steps + 1):
            started = time.perf_counter()
            rows = rows_of_step(step)
            learning_rate = learning_rate_at(step, sft)
            num_tokens = sum(len(row.completion_ids) for row in rows)
            facts = update(
                policy, optimizer, rows, num_trained_tokens=num_tokens, learning_rate=learning_rate, config=training
            )
            step_s = time.perf_counter() - started
            if step % sft.log_interval == 0 or step in (1, sft.max_steps):
                metrics = {name: facts[name] for name in ("loss", "grad_norm")} | {"learning_rate": learning_rate}
                recorder.write(
                    StepRecord(step, "sft", metrics | {"step_s": step_s, "tokens_per_s_update": num_tokens / step_s})
                )
            if sft.eval_interval and (step % sft.eval_interval == 0 or step == sft.max_steps):
                metrics, judged = evaluate(
                    policy,
                    engine,
                    task,
                    held_out,
                    config.evaluation,
                    max_new_tokens=max_new_tokens,
                    seed=training.random_seed,
                )
                recorder.write(StepRecord(step, "eval", metrics))
                recorder.write_samples(step, "eval", judged, None)
        save_model(policy, output)
        recorder.console.line(f"saved {output}; train it on with: grpo-zero train model.pretrained_model_path={output}")
    finally:
        recorder.close()
    return output
