"""A whole GRPO run: load, evaluate, step, evaluate, save, summarise. Ctrl-C saves and says how to go on."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from grpo_zero.config import Config, ModelConfig, config_notes
from grpo_zero.errors import UserError
from grpo_zero.observe.console import Console
from grpo_zero.observe.memory import peak_gib
from grpo_zero.observe.record import StepRecord
from grpo_zero.rollout.engine import Progress
from grpo_zero.runs import MODEL_FOLDER, checkpoint_folder, latest_checkpoint, new_run_folder
from grpo_zero.train.adapters import adapt
from grpo_zero.train.checkpoints import load_optimizer, save_checkpoint
from grpo_zero.train.evaluate import evaluate
from grpo_zero.train.interrupt import interruptible
from grpo_zero.train.kl_reference import load_kl_reference
from grpo_zero.train.loop import GRPO
from grpo_zero.train.metrics import device_peak_gib
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.planned import Prediction, settle_memory
from grpo_zero.train.policy import load_policy, resolve_device, set_recompute
from grpo_zero.train.problems import ProblemSource, Prompted, held_out_problems, load_rows, make_task
from grpo_zero.train.recorder import Recorder, machine_facts
from grpo_zero.train.summary import summarise


def train(config: Config, resume: Path | None = None) -> Path:
    """Run GRPO as configured.

    Args:
        config: checked configuration; with ``resume`` it is the run's own.
        resume: a run folder to go on from its latest checkpoint.

    Returns:
        The run folder.

    Raises:
        UserError: anything the user can mend, before the run folder is made.
    """
    start_s = time.perf_counter()
    checkpoint, model = checkpoint_to_resume(config, resume)
    config, prediction = settle_memory(config, resolve_device(config.model.device), resume)
    training = config.training
    task = make_task(config)
    train_rows, test_rows, facts = load_rows(config, task)
    max_tokens = training.max_prompt_len + max(training.max_gen_len, config.evaluation_gen_len)
    policy = load_policy(model, init_seed=training.random_seed, max_tokens=max_tokens)
    adapt(policy, config, checkpoint)
    set_recompute(policy.decoder, training)
    reference = load_kl_reference(policy, config)
    problems = ProblemSource(task, policy, train_rows, training.max_prompt_len, "training")
    held_out = held_out_problems(config, task, policy, test_rows) if training.eval_interval else []
    optimizer = make_optimizer(policy.decoder, training)
    first_step = load_optimizer(optimizer, checkpoint) if checkpoint else 0
    num_steps = training.max_steps or max(1, len(problems) // training.num_questions_per_batch)

    folder = resume or new_run_folder(config)
    console = Console(num_steps, first_step=first_step, max_minutes=training.max_minutes)
    console.line(
        f"{config.model.pretrained_model_path}: {policy.decoder.spec.num_parameters:,} weights on {policy.decoder.device}; "
        f"algorithm {config.algorithm.preset}"
    )
    console.line(f"{facts['train']} training and {facts['test']} held-out problems; run folder {folder}")
    if prediction:
        prediction.write(folder)
        console.line(prediction.line)
    for note in config_notes(config):
        console.line(f"note: {note}")
    if facts["dropped"]:
        console.line(f"dropped {facts['dropped']} training problems that are among the held-out ones")
    if problems.num_too_long:
        console.line(f"left out {problems.num_too_long} problems whose prompt is over {training.max_prompt_len} tokens")
    recorder = Recorder(folder, console, policy, first_step if resume else None)
    grpo = GRPO(config, policy, task, problems, optimizer, reference)
    run = Run(config, grpo, held_out, recorder, folder, prediction)
    try:
        step = run.loop(first_step, num_steps, start_s, is_resumed=resume is not None)
        console.line(summarise(folder, run.facts(step), time.perf_counter() - start_s))
        if prediction:
            console.line(prediction.compared(device_peak_gib(policy.decoder.device)))
        console.line(f"talk to it: grpo-zero chat --model {folder}; with --problem it is posed problems and judged")
        if step < num_steps:
            console.line(f"stopped after step {step} of {num_steps}; go on with: grpo-zero train --resume {folder}")
    finally:
        recorder.close()
    return folder


def checkpoint_to_resume(config: Config, resume: Path | None) -> tuple[Path | None, ModelConfig]:
    """The checkpoint to go on from, and the model section that names its weights. Raises UserError when there is none."""
    if resume is None:
        return None, config.model
    checkpoint = latest_checkpoint(checkpoint_folder(config, resume))
    if checkpoint is None:
        raise UserError(f"{resume} has no checkpoint to go on from: start the run again with a new training.run_name.")
    if config.lora.rank:  # its model has the adapters merged in; the run goes on with both apart
        return checkpoint, config.model
    return checkpoint, replace(config.model, pretrained_model_path=str(checkpoint / MODEL_FOLDER), random_init=False)


class Run:
    """The loop around ``GRPO.step``: when to evaluate, save and stop."""

    def __init__(
        self,
        config: Config,
        grpo: GRPO,
        held_out: list[Prompted],
        recorder: Recorder,
        folder: Path,
        prediction: Prediction | None = None,
    ) -> None:
        self.prediction = prediction
        self.config, self.grpo, self.held_out, self.recorder = config, grpo, held_out, recorder
        self.checkpoints = checkpoint_folder(config, folder)

    def loop(self, first_step: int, num_steps: int, start_s: float, *, is_resumed: bool) -> int:
        """Step until ``num_steps``, Ctrl-C, or the time limit after at least one step. Returns the last step."""
        training = self.config.training
        step = last_evaluated = first_step
        last_saved = first_step if is_resumed else None
        with interruptible() as interrupt:
            if training.eval_interval and not is_resumed:
                self.evaluate(0)
            while (
                step < num_steps and not interrupt.is_set and not (step > first_step and self.is_out_of_time(start_s))
            ):
                step += 1
                done = self.grpo.step(step, self.progress("sampling"))
                self.recorder.write(done.record)
                self.recorder.write_samples(step, "train", done.judged_PG, done.advantages_PG)
                if training.eval_interval and step % training.eval_interval == 0:
                    self.evaluate(step)
                    last_evaluated = step
                if training.ckpt_save_interval and step % training.ckpt_save_interval == 0:
                    self.save(step)
                    last_saved = step
            if training.eval_interval and step > last_evaluated and not interrupt.is_set:
                self.evaluate(step)
            if step != last_saved:
                self.save(step)
        return step

    def is_out_of_time(self, start_s: float) -> bool:
        """Whether ``max_minutes`` have passed."""
        limit = self.config.training.max_minutes
        return limit is not None and time.perf_counter() - start_s >= 60 * limit

    def evaluate(self, step: int) -> None:
        """Measure held-out success and record it."""
        grpo = self.grpo
        metrics, judged = evaluate(
            grpo.policy, grpo.engine, grpo.task, self.held_out, self.config, self.progress("evaluating")
        )
        self.recorder.write(StepRecord(step, "eval", metrics))
        self.recorder.write_samples(step, "eval", judged)

    def save(self, step: int) -> None:
        """Write a checkpoint."""
        path = save_checkpoint(self.grpo.policy, self.grpo.optimizer, step, self.checkpoints, self.config.lora)
        self.recorder.console.line(f"saved {path}")

    def progress(self, what: str) -> Progress:
        """A callback that redraws the console's status line."""
        return lambda finished, total: self.recorder.console.status(f"{what} {finished}/{total}")

    def facts(self, step: int) -> dict[str, object]:
        """What the summary needs besides the metrics."""
        device = self.grpo.policy.decoder.device
        return {
            "model": self.config.model.pretrained_model_path,
            "algorithm": self.config.algorithm.preset,
            "random_seed": self.config.training.random_seed,
            "steps": step,
            **({"planned_gib": self.prediction.planned_gib} if self.prediction else {}),
            "peak_gib": device_peak_gib(device),
            "peak_host_gib": peak_gib(),
            "machine": machine_facts(device),
        }
