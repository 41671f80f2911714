"""``grpo-zero verify``: do steps of a run again and say whether they come out as recorded."""

from __future__ import annotations

from pathlib import Path

from grpo_zero.checkpoint.checksums import damage
from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.json_text import json_object
from grpo_zero.observe.console import Console
from grpo_zero.observe.files import read_rows
from grpo_zero.runs import check_command, checkpoint_folder, read_state, resumable_checkpoints
from grpo_zero.train.policy import resolve_device
from grpo_zero.train.recorder import machine_facts
from grpo_zero.train.replay import Replayed, replay
from grpo_zero.train.resume import Start, start_at
from grpo_zero.train.summary import SUMMARY_FILE

MOST_SHOWN = 5
"""Differences of one step that are printed."""


def verify(config: Config, run_folder: Path, num_steps: int | None = None) -> bool:
    """Replay from the last checkpoint but one to the last, or from the start where there is only one; print what comes out.

    Args:
        config: the run's own.
        num_steps: stop after so many; the weights are compared only where a checkpoint is reached.

    Returns:
        Whether every number and every weight was equal.

    Raises:
        UserError: no checkpoint, a damaged one, or steps that the run did not record.
    """
    check_command(run_folder, "train")
    start, last, last_step = stretch(config, run_folder)
    end: Path | None = last
    if num_steps is not None and start.step + num_steps < last_step:
        end, last_step = None, start.step + num_steps
    rows = {row["step"]: row for row in read_rows(run_folder / "metrics.jsonl") if row["kind"] == "train"}
    missing = [step for step in range(start.step + 1, last_step + 1) if step not in rows]
    if missing:
        raise UserError(
            f"{run_folder / 'metrics.jsonl'} has no row of step {missing[0]}, so there is nothing to hold it against."
        )
    console = Console()
    origin = start.checkpoint.name if start.checkpoint else "the starting model"
    console.line(f"replaying steps {start.step + 1} to {last_step} of {run_folder} from {origin}")
    is_equal = True
    for result in replay(config, start, rows, end, last_step):
        console.line(_line(result))
        is_equal = is_equal and not result.differences
    console.line(_verdict(is_equal, run_folder, config))
    console.close()
    return is_equal


def stretch(config: Config, run_folder: Path) -> tuple[Start, Path, int]:
    """From where to where: the last two checkpoints that hold all a run needs, or the starting model and the only one."""
    folder = checkpoint_folder(config, run_folder)
    found = resumable_checkpoints(folder)
    if not found:
        raise UserError(
            f"{run_folder} has no checkpoint to compare with: verify it once training.ckpt_save_interval has passed."
        )
    for checkpoint in found[-2:]:
        fault = damage(checkpoint)
        if fault is not None:
            raise UserError(f"{checkpoint} is damaged ({fault}): remove it, and verify what is left.")
    end = found[-1]
    start = start_at(config, found[-2]) if len(found) > 1 else Start(config.model)
    return start, end, read_state(end)["step"]


def _line(result: Replayed) -> str:
    if not result.differences:
        return f"{result.what}: all {result.num_compared} equal"
    shown = [f"{d.what} was {d.recorded!r} and is {d.found!r}" for d in result.differences[:MOST_SHOWN]]
    rest = len(result.differences) - len(shown)
    more = f", and {rest} more" if rest else ""
    return f"{result.what}: {len(result.differences)} of {result.num_compared} differ: {'; '.join(shown)}{more}"


def _verdict(is_equal: bool, run_folder: Path, config: Config) -> str:
    if is_equal:
        return "verified: everything came out as recorded, to the last bit"
    path = run_folder / SUMMARY_FILE
    summary = json_object(path.read_bytes(), str(path)) if path.is_file() else {}
    recorded = summary.get("machine", {})
    here = machine_facts(resolve_device(config.model.device))
    changed = [f"{key} {recorded[key]} -> {value}" for key, value in here.items() if recorded.get(key, value) != value]
    where = (
        f"elsewhere ({', '.join(changed)}), where sums may round otherwise" if changed else "on a machine like this one"
    )
    return f"not verified: the above differs; the run was made {where}"
