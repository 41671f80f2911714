"""A whole GRPO run: load, evaluate, step, evaluate, save, summarise. Ctrl-C saves and says how to go on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from grpo_zero.config import Config, TrainingConfig
from grpo_zero.errors import UserError
from grpo_zero.observe.console import Console
from grpo_zero.observe.curve import success_chart
from grpo_zero.observe.files import read_rows, write_summary
from grpo_zero.observe.record import StepRecord
from grpo_zero.train.checkpoints import latest_checkpoint, load_optimizer, save_checkpoint
from grpo_zero.train.evaluate import evaluate
from grpo_zero.train.loop import GRPO
from grpo_zero.train.metrics import device_peak_gib
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy, load_policy, resolve_device
from grpo_zero.train.problems import ProblemSource, Prompted, load_rows, make_task
from grpo_zero.train.session import Recorder, checkpoint_folder, machine_facts, new_run_folder


def make_optimizer(policy: Policy, training: TrainingConfig) -> AdamW:
    """The configured optimizer over all weights."""
    return AdamW(
        policy.decoder.named_parameters(),
        betas=training.betas,
        weight_decay=training.weight_decay,
        states_on_host=training.memory_efficient_adamw,
    )


def set_recompute(policy: Policy, training: TrainingConfig) -> None:
    """Apply ``recompute_activations``; ``auto`` recomputes on a GPU, where memory is short."""
    setting = training.recompute_activations
    policy.decoder.recompute_activations = policy.decoder.device.type == "cuda" if setting == "auto" else bool(setting)


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
    training = config.training
    start_s = time.perf_counter()
    checkpoint = None if resume is None else latest_checkpoint(checkpoint_folder(config, resume))
    if resume is not None and checkpoint is None:
        raise UserError(f"{resume} has no checkpoint to go on from: start the run again with a new training.run_name.")
    model = (
        config.model
        if checkpoint is None
        else replace(config.model, pretrained_model_path=str(checkpoint / "model"), random_init=False)
    )

    resolve_device(config.model.device)
    task = make_task(config)
    train_rows, test_rows, facts = load_rows(config)
    max_new_tokens = max(training.max_gen_len, config.evaluation.max_gen_len or 0)
    policy = load_policy(model, init_seed=training.random_seed, max_tokens=training.max_prompt_len + max_new_tokens)
    set_recompute(policy, training)
    problems = ProblemSource(task, policy, train_rows, training.max_prompt_len, "training")
    held_out: list[Prompted] = []
    if training.eval_interval:
        held_out = ProblemSource(task, policy, test_rows, training.max_prompt_len, "held-out").first(
            config.evaluation.num_problems
        )
    optimizer = make_optimizer(policy, training)
    first_step = 0 if checkpoint is None else load_optimizer(optimizer, checkpoint)
    num_steps = training.max_steps or max(1, len(problems) // training.num_questions_per_batch)

    folder = new_run_folder(config) if resume is None else resume
    console = Console(num_steps, first_step=first_step, max_minutes=training.max_minutes)
    recorder = Recorder(folder, console, policy, None if resume is None else first_step)
    run = _Run(config, policy, GRPO(config, policy, task, problems, optimizer), held_out, recorder, folder)
    num_weights = policy.decoder.spec.num_parameters
    console.line(f"{config.model.pretrained_model_path}: {num_weights:,} weights on {policy.decoder.device}")
    console.line(f"{facts['train']} training and {facts['test']} held-out problems")
    if facts["dropped"]:
        console.line(f"dropped {facts['dropped']} training problems that are among the held-out ones")
    if problems.num_too_long:
        console.line(f"left out {problems.num_too_long} problems whose prompt is over {training.max_prompt_len} tokens")
    console.line(f"run folder {folder}")
    try:
        run.loop(first_step, num_steps, start_s)
    finally:
        recorder.close()
    return folder


class _Run:
    """The loop around ``GRPO.step``: when to evaluate, save and stop."""

    def __init__(
        self, config: Config, policy: Policy, grpo: GRPO, held_out: list[Prompted], recorder: Recorder, folder: Path
    ) -> None:
        self.config, self.policy, self.grpo = config, policy, grpo
        self.held_out, self.recorder, self.folder = held_out, recorder, folder
        self.checkpoints = checkpoint_folder(config, folder)
        self.num_sampled_tokens = 0

    def loop(self, first_step: int, num_steps: int, start_s: float) -> None:
        training = self.config.training
        last_saved = step = first_step
        if first_step == 0 and training.eval_interval:
            self.evaluate(0)
        with _interruptible() as interrupt:
            while step < num_steps and not interrupt.is_set:
                if step > first_step and _out_of_time(training, start_s):
                    break
                step += 1
                done = self.grpo.step(step, self._progress("sampling"))
                self.recorder.write(done.record)
                self.recorder.write_samples(step, "train", done.judged_PG, done.advantages_PG.tolist())
                self.num_sampled_tokens += int(done.record.metrics["num_tokens"])
                if training.eval_interval and step % training.eval_interval == 0:
                    self.evaluate(step)
                if training.ckpt_save_interval and step % training.ckpt_save_interval == 0:
                    self.save(step)
                    last_saved = step
            if training.eval_interval and step % training.eval_interval and not interrupt.is_set:
                self.evaluate(step)
            if step > last_saved:
                self.save(step)
            self.summarise(step, start_s)
            if step < num_steps:
                why = (
                    "Stopped by Ctrl-C"
                    if interrupt.is_set
                    else f"Stopped at training.max_minutes = {training.max_minutes}"
                )
                self.recorder.console.line(
                    f"{why} after step {step} of {num_steps}; go on with: grpo-zero train --resume {self.folder}"
                )

    def evaluate(self, step: int) -> None:
        started = time.perf_counter()
        config = self.config.evaluation
        metrics, judged = evaluate(
            self.policy,
            self.grpo.engine,
            self.grpo.task,
            self.held_out,
            config,
            max_new_tokens=config.max_gen_len or self.config.training.max_gen_len,
            seed=self.config.training.random_seed,
            progress=self._progress("evaluating"),
        )
        metrics["eval/eval_s"] = time.perf_counter() - started
        self.recorder.write(StepRecord(step, "eval", metrics))
        self.recorder.write_samples(step, "eval", judged, None)

    def save(self, step: int) -> None:
        path = save_checkpoint(self.policy, self.grpo.optimizer, step, self.checkpoints)
        self.recorder.console.line(f"saved {path}")

    def summarise(self, step: int, start_s: float) -> None:
        """``summary.json``, and the curve on the console."""
        rows = read_rows(self.folder / "metrics.jsonl")
        evals = [row for row in rows if row["kind"] == "eval"]
        trained = [row for row in rows if row["kind"] == "train"]
        seconds = time.perf_counter() - start_s
        summary: dict[str, Any] = {
            "model": self.config.model.pretrained_model_path,
            "random_seed": self.config.training.random_seed,
            "steps": step,
            "seconds": round(seconds, 1),
            "step_s_median": _median([row["step_s"] for row in trained]),
            "sampled_tokens_per_s": _ratio(trained, "num_tokens", "sample_s"),
            "updated_tokens_per_s": _ratio(trained, "forwarded_tokens", "update_s"),
            "peak_gib": device_peak_gib(self.policy.decoder.device),
            "before": _eval_facts(evals[0]) if evals else None,
            "after": _eval_facts(evals[-1]) if evals else None,
            "machine": machine_facts(self.policy.decoder.device),
        }
        write_summary(self.folder / "summary.json", summary)
        console = self.recorder.console
        if len(evals) > 1:
            console.line(success_chart([row["step"] for row in evals], [row["eval/success"] for row in evals]))
            before, after = evals[0], evals[-1]
            for key, label in (("eval/success", "sampled"), ("eval/greedy_success", "greedy")):
                if key in before:
                    console.line(
                        f"{label} success {100 * before[key]:.1f} % -> {100 * after[key]:.1f} % "
                        f"(95 %: {100 * after[key + '_low']:.1f} to {100 * after[key + '_high']:.1f})"
                    )
        console.line(
            f"{step} steps, {seconds:.0f} s; summary.json, metrics.jsonl and samples.jsonl are in {self.folder}"
        )

    def _progress(self, what: str) -> Any:
        return lambda finished, total: self.recorder.console.status(f"{what} {finished}/{total}")


class _Interrupt:
    is_set = False


@contextmanager
def _interruptible() -> Iterator[_Interrupt]:
    """Turn the first Ctrl-C into a request to stop after the step; a second one stops at once."""
    interrupt = _Interrupt()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        if interrupt.is_set:
            raise KeyboardInterrupt
        interrupt.is_set = True
        print("\nCtrl-C: finishing this step, then saving (again to stop at once and lose it)", flush=True)

    try:
        previous = signal.signal(signal.SIGINT, on_signal)
    except ValueError:  # not the main thread: nobody to send us Ctrl-C
        yield interrupt
        return
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)


def _out_of_time(training: TrainingConfig, start_s: float) -> bool:
    return training.max_minutes is not None and time.perf_counter() - start_s >= 60 * training.max_minutes


def _eval_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("eval/"): value for key, value in row.items() if key not in ("kind",)}


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _ratio(rows: list[dict[str, Any]], above: str, below: str) -> float | None:
    return sum(row[above] for row in rows) / sum(row[below] for row in rows) if rows else None
