"""Step records as TensorBoard scalars, with TensorBoard's own writer: no torch, no TensorFlow."""

from __future__ import annotations

import time
from pathlib import Path

from grpo_zero.observe.record import StepRecord


class TensorBoardSink:
    """Writes each metric as a scalar under its catalogue name.

    Args:
        folder: where the event file goes; ``tensorboard --logdir`` takes it or a parent.
        keep_until_step: when resuming, TensorBoard forgets later steps. None forgets none.
    """

    def __init__(self, folder: Path, keep_until_step: int | None = None) -> None:
        # Imported here: a second that `--help` and the dashboard need not spend.
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._events = event_pb2
        # A short flush interval, so that a live chart follows the run.
        self._writer = EventFileWriter(str(folder), flush_secs=10)
        if keep_until_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=keep_until_step + 1, session_log=start))

    def write(self, record: StepRecord) -> None:
        """Adds a step's numbers; a NaN is kept, since TensorBoard can show it."""
        from tensorboard.compat.proto import summary_pb2

        values = [
            summary_pb2.Summary.Value(tag=name, simple_value=float(value)) for name, value in record.metrics.items()
        ]
        self._writer.add_event(
            self._events.Event(wall_time=time.time(), step=record.step, summary=summary_pb2.Summary(value=values))
        )

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()
