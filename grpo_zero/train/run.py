"""A whole GRPO run: load, evaluate, step, evaluate, save, summarise. Ctrl-C and SIGTERM save and say how to go on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError

from grpo_zero.config import Config, config_notes
from grpo_zero.errors import UserError
from grpo_zero.observe.live import make_console
from grpo_zero.observe.memory import peak_gib
from grpo_zero.observe.phases import watched
from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.sinks import require_installed
from grpo_zero.out_of_memory import OutOfMemory
from grpo_zero.report.write import report_line
from grpo_zero.rollout.engine import Progress
from grpo_zero.runs import checkpoint_folder, latest_checkpoint, new_run_folder, write_config
from grpo_zero.train.adapters import adapt
from grpo_zero.train.bad_batch import bad_answers, broken_weights
from grpo_zero.train.checkpoints import load_optimizer, save_checkpoint
from grpo_zero.train.evaluate import evaluate
from grpo_zero.train.interrupt import Interrupt, Terminated, interruptible
from grpo_zero.train.kl_reference import load_kl_reference
from grpo_zero.train.loop import GRPO, Step
from grpo_zero.train.metrics import device_peak_gib
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.planned import Prediction, settle_memory
from grpo_zero.train.policy import load_policy, resolve_device, set_recompute, set_reuse
from grpo_zero.train.problems import ProblemSource, Prompted, held_out_problems, load_rows, make_task
from grpo_zero.train.recorder import Recorder, code_facts, machine_facts
from grpo_zero.train.resume import Start, check_resumed, find_start
from grpo_zero.train.shortage import explained
from grpo_zero.train.summary import summarise
from grpo_zero.train.watch import Watch


def train(config: Config, resume: Path | None = None) -> Path:
    """Run GRPO as configured; the arguments of ``run_to_end``. Returns the run folder."""
    return run_to_end(config, resume)[0]


def run_to_end(config: Config, resume: Path | None = None) -> tuple[Path, int]:
    """Run GRPO as configured.

    Args:
        config: checked configuration; with ``resume`` it is the run's own, with what a resumed run may change.
        resume: a run folder to go on from its latest checkpoint.

    Returns:
        The run folder, and the exit code: 0, or 128 + the number of the signal that ended the run after it was saved.

    Raises:
        UserError: anything the user can mend, before the run folder is made; a verifier that keeps failing, a checkpoint that
            cannot be written, numbers that stay infinite, or too little memory for the smallest sizes, later.
    """
    start_s = time.perf_counter()
    require_installed(config.training.sinks or ())
    notes = check_resumed(resume, config, "train") if resume else []
    start = find_start(config, resume)
    config, prediction = settle_memory(config, resolve_device(config.model.device), resume)
    training = config.training
    setup = set_up(config, start)
    grpo, problems = setup.grpo, setup.problems
    policy = grpo.policy
    num_steps = training.max_steps or max(1, len(problems) // training.num_questions_per_batch)

    folder = resume or new_run_folder(config, "train")
    console = make_console(num_steps, first_step=start.step, max_minutes=training.max_minutes)
    console.line(
        f"{config.model.pretrained_model_path}: {policy.decoder.spec.num_parameters:,} weights on {policy.decoder.device}; "
        f"algorithm {config.algorithm.preset}"
    )
    console.line(f"{setup.facts['train']} training and {setup.facts['test']} held-out problems; run folder {folder}")
    if prediction:
        prediction.write(folder)
        console.line(prediction.line)
    for note in (*notes, *start.notes, *config_notes(config)):
        console.line(f"note: {note}")
    if notes:
        write_config(folder, config)
    if setup.facts["dropped"]:
        console.line(f"dropped {setup.facts['dropped']} training problems that are among the held-out ones")
    if problems.num_too_long:
        console.line(f"left out {problems.num_too_long} problems whose prompt is over {training.max_prompt_len} tokens")
    recorder = Recorder(folder, console, policy, start, config)
    run = Run(config, grpo, setup.held_out, recorder, folder, prediction)
    try:
        with (
            interruptible() as interrupt,
            explained(config, policy.decoder, lambda: grpo.sizes),
            watched(console.phase),
        ):
            step = run.loop(start, num_steps, start_s, interrupt)
        console.line(summarise(folder, run.facts(step), time.perf_counter() - start_s))
        if prediction:
            console.line(prediction.compared(device_peak_gib(policy.decoder.device)))
        if training.report and step and not interrupt.is_set:
            console.status("writing the report")
            console.line(report_line(folder))
        if step:
            console.line(f"talk to it: grpo-zero chat --model {folder}; with --problem it is posed problems and judged")
        if step < num_steps:
            console.line(f"stopped after step {step} of {num_steps}; go on with: grpo-zero train --resume {folder}")
    finally:
        recorder.close()
    return folder, interrupt.exit_code


@dataclass(frozen=True, slots=True)
class SetUp:
    """All that a config and a starting point come to."""

    grpo: GRPO
    problems: ProblemSource
    held_out: list[Prompted]
    facts: dict[str, int]
    """Counts of problems, for the log."""


def set_up(config: Config, start: Start) -> SetUp:
    """Load task, model, optimizer and problems.

    Raises:
        UserError: anything the user can mend.
    """
    training = config.training
    task = make_task(config)
    train_rows, test_rows, facts = load_rows(config, task)
    max_tokens = training.max_prompt_len + max(training.max_gen_len, config.evaluation_gen_len)
    policy = load_policy(start.model, init_seed=training.random_seed, max_tokens=max_tokens)
    adapt(policy, config, start.checkpoint)
    set_recompute(policy.decoder, training)
    set_reuse(training)
    reference = load_kl_reference(policy, config)
    problems = ProblemSource(task, policy, train_rows, training.max_prompt_len, "training")
    held_out = held_out_problems(config, task, policy, test_rows) if training.eval_interval else []
    optimizer = make_optimizer(policy.decoder, training)
    if start.checkpoint:
        load_optimizer(optimizer, start.checkpoint)
    return SetUp(GRPO(config, policy, task, problems, optimizer, reference), problems, held_out, facts)


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
        self.folder, self.checkpoints = folder, checkpoint_folder(config, folder)
        self.watch = Watch(config.training, grpo.policy.decoder, lambda: grpo.sizes)
        self.num_updates = grpo.optimizer.num_steps
        """Optimizer steps after the last whole step."""
        self.evaluated_step, self.success = -1, 0.0
        """Where held-out success was last measured, and what it was."""

    def loop(self, start: Start, num_steps: int, start_s: float, interrupt: Interrupt) -> int:
        """Step until ``num_steps``, a signal, or the time limit after at least one step. Returns the last step done.

        Raises:
            UserError: as ``run_to_end``.
            OutOfMemory: for good; the last whole step is saved if no update came after it.
        """
        training = self.config.training
        step, last_saved = start.step, start.step if start.checkpoint else None
        try:
            if training.eval_interval and (not step or (self.is_due(step) and not start.is_evaluated)):
                self.evaluate(step, interrupt)
            while (
                step < num_steps and not interrupt.is_set and not (step > start.step and self.is_out_of_time(start_s))
            ):
                done = self.step(step + 1, interrupt)
                step += 1
                self.recorder.write(done.record)
                self.recorder.write_samples(step, "train", done.judged_PG, done.advantages_PG)
                self.recorder.show_answers(step, done.judged_PG)
                self.num_updates = self.grpo.optimizer.num_steps
                self.tell(self.watch.after_step(done.record))
                if self.watch.skipped.is_over:
                    self.watch.stop(bad_answers(self.grpo, done), self.folder, self.grpo.policy.tokenizer)
                if self.is_due(step):
                    self.evaluate(step, interrupt)
                if training.ckpt_save_interval and step % training.ckpt_save_interval == 0:
                    self.save(step)
                    last_saved = step
            if training.eval_interval and step > max(start.step, self.evaluated_step) and not interrupt.is_set:
                self.evaluate(step, interrupt)
        except Terminated:  # the weights are still those after `step`
            pass
        except OutOfMemory:
            if step and step != last_saved and self.grpo.optimizer.num_steps == self.num_updates:
                self.save(step)
            raise
        if step and step != last_saved:
            self.save(step)
        return step

    def step(self, step: int, interrupt: Interrupt) -> Step:
        """One step of GRPO. ``Terminated`` may come until it touches the weights."""
        optimizer = self.grpo.optimizer
        before = optimizer.num_steps
        interrupt.may_drop = lambda: optimizer.num_steps == before
        try:
            return self.grpo.step(step, self.progress("sampling"))
        finally:
            interrupt.may_drop = lambda: False

    def tell(self, notes: Sequence[str]) -> None:
        """Print what a watch found. Sizes that were lowered go into config.yaml, so that a resumed run has them too."""
        for note in notes:
            self.recorder.console.line(f"note: {note}")
        if self.grpo.sizes != self.config.training:
            self.config = replace(self.config, training=self.grpo.sizes)
            write_config(self.folder, self.config)

    def is_due(self, step: int) -> bool:
        """Whether held-out success is to be measured after this step."""
        interval = self.config.training.eval_interval
        return bool(interval) and step % interval == 0

    def is_out_of_time(self, start_s: float) -> bool:
        """Whether ``max_minutes`` have passed."""
        limit = self.config.training.max_minutes
        return limit is not None and time.perf_counter() - start_s >= 60 * limit

    def evaluate(self, step: int, interrupt: Interrupt) -> None:
        """Measure held-out success and record it."""
        grpo = self.grpo
        interrupt.may_drop = lambda: True
        try:
            metrics, judged = evaluate(
                grpo.policy, grpo.engine, grpo.task, self.held_out, self.config, self.progress("evaluating")
            )
        finally:
            interrupt.may_drop = lambda: False
        self.recorder.write(StepRecord(step, "eval", metrics))
        self.recorder.write_samples(step, "eval", judged)
        self.tell(self.watch.lowered())
        self.evaluated_step, self.success = step, metrics["eval/success"]

    def save(self, step: int) -> None:
        """Write a checkpoint, or say why it cannot be written.

        Raises:
            UserError: it cannot, and ``training.ckpt_on_error`` is stop; or the weights are broken.
        """
        training = self.config.training
        broken = broken_weights(self.grpo.policy.decoder)
        if broken:
            raise UserError(
                f"After step {step} {len(broken)} of the weights' tensors hold NaN or infinity, {broken[0]} first, so no "
                "checkpoint is written: start from an earlier one with a lower training.learning_rate."
            )
        self.recorder.sync()
        try:
            path = save_checkpoint(
                self.grpo.policy,
                self.grpo.optimizer,
                step,
                self.checkpoints,
                self.config.lora,
                keep_last=training.ckpt_keep_last,
                keep_every=training.ckpt_keep_every,
                success=self.success if self.evaluated_step == step else None,
                is_evaluated=self.evaluated_step == step or not self.is_due(step),
            )
        except (OSError, SafetensorError) as error:
            latest = latest_checkpoint(self.checkpoints)
            message = (
                f"The checkpoint of step {step} could not be written to {self.checkpoints} ({error}); "
                f"{f'{latest.name} is the last good one' if latest else 'there is none yet'}"
            )
            if training.ckpt_on_error == "stop":
                raise UserError(f"{message}: make room there, then go on with --resume.") from error
            self.recorder.console.line(f"note: {message}; going on as training.ckpt_on_error says")
        else:
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
            "code": code_facts(),
        }
