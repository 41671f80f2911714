"""A callback that writes what TRL logs as ``metrics.jsonl``, so that whatever reads our runs reads TRL's."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from grpo_zero.bridges.trl.names import EVAL, our_metrics
from grpo_zero.errors import UserError
from grpo_zero.observe.files import MetricsFile, read_rows
from grpo_zero.observe.record import StepRecord


class MetricsCallback(TrainerCallback):
    """Writes ``metrics.jsonl`` of a run folder: one row each time TRL logs (``logging_steps``) or evaluates.

    A step is one update, as TRL counts; with several updates on a rollout, rows without a new rollout have no reward. A run
    that TRL resumes goes on in the same file. Of several processes the first one writes.
    """

    def __init__(self, run_folder: str | Path) -> None:
        """``run_folder`` is made when missing."""
        self.path = Path(run_folder) / "metrics.jsonl"

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any
    ) -> None:
        """Drops rows of steps that a resumed run does again. Raises ``UserError`` where another run's rows would be lost."""
        if not state.is_world_process_zero:
            return
        if state.global_step == 0 and self.path.exists() and any(row["step"] for row in read_rows(self.path)):
            raise UserError(
                f"{self.path} holds the steps of another run: give MetricsCallback another folder, or go on with "
                "trainer.train(resume_from_checkpoint=True)."
            )
        MetricsFile(self.path, lambda row: row["step"] <= state.global_step).close()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> None:
        """One row; the totals that TRL logs when it has finished are of no step, and are left to TRL's own log."""
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        metrics = our_metrics(
            logs,
            reward_weights=getattr(args, "reward_weights", None),
            answers_per_rollout=getattr(args, "generation_batch_size", None) or args.train_batch_size,
        )
        is_evaluation = any(name.startswith(EVAL) for name in logs)
        record = StepRecord(state.global_step, "eval" if is_evaluation else "train", metrics)
        # Opened for each row: TRL also evaluates outside of training, and training may stop anywhere.
        with closing(MetricsFile(self.path)) as file:
            file.write(record)
