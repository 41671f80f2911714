"""What TensorBoard's own reader finds in the event file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.tensorboard import TensorBoardSink


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_scalars_come_back_and_a_resume_forgets_later_steps(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    for step in (1, 2, 3):
        sink.write(StepRecord(step=step, kind="train", metrics={"reward/answer": step / 4}))
    sink.close()
    assert scalars(tmp_path, "reward/answer") == [(1, 0.25), (2, 0.5), (3, 0.75)]
    sink = TensorBoardSink(tmp_path, keep_until_step=1)
    sink.write(StepRecord(step=2, kind="train", metrics={"reward/answer": 1.0}))
    sink.close()
    assert scalars(tmp_path, "reward/answer") == [(1, 0.25), (2, 1.0)]


def test_observers_import_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from grpo_zero.observe import catalogue, console, curve, files, intervals, memory\n"
        "from grpo_zero.observe.tensorboard import TensorBoardSink\n"
        "assert 'tensorboard' not in sys.modules\n"
        f"TensorBoardSink(pathlib.Path({str(tmp_path)!r})).close()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
