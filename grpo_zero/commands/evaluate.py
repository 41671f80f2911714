"""``grpo-zero eval``: score a model on the held-out problems of a config."""

from __future__ import annotations

from pathlib import Path

from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.observe.console import Console
from grpo_zero.observe.files import write_summary
from grpo_zero.observe.record import StepRecord
from grpo_zero.train.evaluate import evaluate, flatten
from grpo_zero.train.policy import load_policy, make_engine
from grpo_zero.train.problems import held_out_problems, load_rows, make_task
from grpo_zero.train.recorder import machine_facts


def evaluate_model(config: Config, json_path: Path | None) -> dict[str, float]:
    """Print success with its interval and one answer; write the numbers to ``json_path`` when given."""
    if config.data.test_size == 0:
        raise UserError(
            "data.test_size is 0, so there is nothing to score on: give the number of problems to hold out."
        )
    task = make_task(config)
    _, test_rows, _ = load_rows(config, task)
    seed = config.training.random_seed
    policy = load_policy(
        config.model, init_seed=seed, max_tokens=config.training.max_prompt_len + config.evaluation_gen_len
    )
    engine = make_engine(policy, config.training)
    console = Console()
    metrics, judged = evaluate(
        policy,
        engine,
        task,
        held_out_problems(config, task, policy, test_rows),
        config,
        progress=lambda finished, total: console.status(f"evaluating {finished}/{total}"),
    )
    console.write(StepRecord(0, "eval", metrics))
    answers = list(flatten(judged))
    shown = next((answer for answer in answers if answer.verdict.correct), answers[0])
    console.line(
        f"\none answer ({shown.verdict.reason}):\n{policy.tokenizer.decode(shown.item.prompt_ids)}{shown.text}"
    )
    console.close()
    if json_path is not None:
        facts = {"model": config.model.pretrained_model_path, "seed": seed}
        write_summary(json_path, facts | metrics | {"machine": machine_facts(policy.decoder.device)})
    return metrics
