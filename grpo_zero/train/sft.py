"""Warm start: supervised training on prompt and response, on the same packed path and with the same checkpoints as GRPO."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from grpo_zero.config import Config, TrainingConfig
from grpo_zero.errors import UserError
from grpo_zero.observe.live import make_console
from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.sinks import require_installed
from grpo_zero.runs import checkpoint_folder, new_run_folder, write_config
from grpo_zero.tasks import Task
from grpo_zero.train.adapters import adapt
from grpo_zero.train.bad_batch import bad_demonstrations
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.budget import Budget
from grpo_zero.train.checkpoints import load_optimizer, save_checkpoint, save_model
from grpo_zero.train.demonstrations import (
    demonstration_rows,
    generated_rows,
    read_demonstrations,
    tokenize_demonstrations,
)
from grpo_zero.train.evaluate import evaluate
from grpo_zero.train.interrupt import interruptible
from grpo_zero.train.metrics import device_peak_gib
from grpo_zero.train.optimizer import AdamW, make_optimizer
from grpo_zero.train.planned import settle_memory
from grpo_zero.train.policy import Policy, load_policy, make_engine, resolve_device, set_recompute, set_reuse
from grpo_zero.train.problems import ProblemSource, Prompted, held_out_problems, load_rows, make_task
from grpo_zero.train.recorder import Recorder
from grpo_zero.train.resume import check_resumed, find_start
from grpo_zero.train.rows import weigh
from grpo_zero.train.schedule import sft_learning_rate
from grpo_zero.train.shortage import explained
from grpo_zero.train.token_loss import DemonstrationLoss
from grpo_zero.train.update import update
from grpo_zero.train.watch import Watch


def warm_start(config: Config, resume: Path | None = None) -> Path | None:
    """``warm_start_to_end`` without its exit code."""
    return warm_start_to_end(config, resume)[0]


def warm_start_to_end(config: Config, resume: Path | None = None) -> tuple[Path | None, int]:
    """Train on demonstrations and write the model to ``sft.output``.

    Args:
        config: checked configuration; with ``resume`` it is the run's own.
        resume: a run folder of ``sft`` to go on from its latest checkpoint.

    Returns:
        The model folder, or None when a signal ended the run before its last step; and the exit code: 0, or 128 + the signal.

    Raises:
        UserError: anything the user can mend, before the run folder is made.
    """
    require_installed(config.training.sinks or ())
    output = Path(config.sft.output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"sft.output is {str(output)!r}, which already exists: give another folder or remove it.")
    notes = check_resumed(resume, config, "sft") if resume else []
    start = find_start(config, resume)
    config, prediction = settle_memory(config, resolve_device(config.model.device), resume, "sft")
    sft, training = config.sft, config.training
    max_tokens = training.max_prompt_len + config.evaluation_gen_len if sft.eval_interval else None
    policy = load_policy(start.model, init_seed=training.random_seed, max_tokens=max_tokens)
    adapt(policy, config, start.checkpoint)
    set_recompute(policy.decoder, training)
    set_reuse(training)
    task = make_task(config)
    rows_of_step, held_out = _data(config, policy, task)
    rows_of_step(1)  # a bad demonstration stops the run before it starts
    optimizer = make_optimizer(policy.decoder, training)
    if start.checkpoint:
        load_optimizer(optimizer, start.checkpoint)

    folder = resume or new_run_folder(config, "sft")
    recorder = Recorder(folder, make_console(sft.max_steps, first_step=start.step), policy, start, config)
    for note in (*notes, *start.notes):
        recorder.console.line(f"note: {note}")
    if notes:
        write_config(folder, config)
    if prediction:
        prediction.write(folder)
        recorder.console.line(prediction.line)
    checkpoints = checkpoint_folder(config, folder)
    engine, budget = make_engine(policy, training), Budget(training)

    def sizes() -> TrainingConfig:
        return replace(budget.training, num_slots=engine.num_slots)

    watch = Watch(training, policy.decoder, sizes)
    step = start.step
    try:
        with interruptible() as interrupt, explained(config, policy.decoder, sizes, "sft"):
            while step < sft.max_steps and not interrupt.is_set:
                step += 1
                rows = rows_of_step(step)
                record = _step(policy, optimizer, rows, step, config, budget)
                if step % sft.log_interval == 0 or step in (1, sft.max_steps) or record.metrics["skipped_updates"]:
                    recorder.write(record)
                for note in watch.after_step(record):
                    recorder.console.line(f"note: {note}")
                if watch.skipped.is_over:
                    watch.stop(bad_demonstrations(policy, rows, record, budget), folder, policy.tokenizer)
                if sft.eval_interval and (step % sft.eval_interval == 0 or step == sft.max_steps):
                    metrics, judged = evaluate(policy, engine, task, held_out, config)
                    recorder.write(StepRecord(step, "eval", metrics))
                    recorder.write_samples(step, "eval", judged)
                if training.ckpt_save_interval and step % training.ckpt_save_interval == 0 and step < sft.max_steps:
                    save_checkpoint(policy, optimizer, step, checkpoints, config.lora)
        if step < sft.max_steps:
            save_checkpoint(policy, optimizer, step, checkpoints, config.lora)
            recorder.console.line(
                f"stopped after step {step} of {sft.max_steps}; go on with: grpo-zero sft --resume {folder}"
            )
            return None, interrupt.exit_code
        save_model(policy, output)
        recorder.console.line(f"saved {output}; train it on with: grpo-zero train model.pretrained_model_path={output}")
    finally:
        if prediction:
            recorder.console.line(prediction.compared(device_peak_gib(policy.decoder.device)))
        recorder.close()
    return output, 0


def _data(config: Config, policy: Policy, task: Task) -> tuple[Callable[[int], list[TrainRow]], list[Prompted]]:
    """The rows of a step as a function of its number, and the held-out problems to evaluate on."""
    sft = config.sft
    needs_problems = sft.path == "generate" or sft.eval_interval
    train_rows, test_rows, _ = load_rows(config, task) if needs_problems else ([], [], {})
    held_out = held_out_problems(config, task, policy, test_rows) if sft.eval_interval else []
    if sft.path == "generate":
        problems = ProblemSource(task, policy, train_rows, config.training.max_prompt_len, "training")
        return partial(generated_rows, policy, problems, config), held_out
    demonstrations = tokenize_demonstrations(policy, read_demonstrations(Path(sft.path)), config, task.response_start)
    return partial(demonstration_rows, demonstrations, config), held_out


def _step(
    policy: Policy, optimizer: AdamW, rows: list[TrainRow], step: int, config: Config, budget: Budget
) -> StepRecord:
    started = time.perf_counter()
    num_tokens = sum(len(row.completion_ids) for row in rows)
    learning_rate = sft_learning_rate(step, config.sft)
    weighed = weigh(rows, "token", config.training.max_gen_len)
    facts = budget.attempt(
        lambda training: update(policy, optimizer, weighed, DemonstrationLoss(), learning_rate, training),
        weighed,
        "the update",
        optimizer,
    )
    step_s = time.perf_counter() - started
    return StepRecord(
        step,
        "sft",
        {
            "loss": facts["loss"],
            "grad_norm": facts["grad_norm"],
            "skipped_updates": facts.get("skipped_updates", 0),
            "learning_rate": learning_rate,
            "step_s": step_s,
            "tokens_per_s_update": num_tokens / step_s,
        },
    )
