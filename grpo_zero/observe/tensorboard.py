"""Step records as TensorBoard scalars, with TensorBoard's own writer: no torch, no TensorFlow."""

from __future__ import annotations

import html
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grpo_zero.observe.catalogue import find_metric
from grpo_zero.observe.record import StepRecord

FORMAT_PART = "reward/format"
FORMAT_TAG, FORMAT_SCALE = "format_reward", 10.0
"""The original's tag is 1 where the form is right; the part of the reward, in every bundled task, is 0.1 then."""


class TensorBoardSink:
    """Writes each metric as a scalar under its catalogue name, and under the original GRPO-Zero's tag where that is another.

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
            summary_pb2.Summary.Value(tag=tag, simple_value=float(value)) for tag, value in scalars(record.metrics)
        ]
        self._add(record.step, summary_pb2.Summary(value=values))

    def write_texts(self, step: int, texts: Sequence[str]) -> None:
        """Adds texts as ``text_0``, ``text_1`` and so on, as the original does."""
        from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2

        plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
        one = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
        values = [
            summary_pb2.Summary.Value(
                tag=f"text_{index}/text_summary",  # torch's SummaryWriter names them so
                metadata=summary_pb2.SummaryMetadata(plugin_data=plugin),
                tensor=tensor_pb2.TensorProto(
                    dtype=types_pb2.DT_STRING,
                    tensor_shape=one,
                    # TensorBoard reads texts as markdown.
                    string_val=[f"<pre>{html.escape(text)}</pre>".encode(errors="replace")],
                ),
            )
            for index, text in enumerate(texts)
        ]
        self._add(step, summary_pb2.Summary(value=values))

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()

    def _add(self, step: int, summary: object) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, summary=summary))


def scalars(metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Tags with their values: ours, then the original's where they differ."""
    for name, value in metrics.items():
        yield name, value
        metric = find_metric(name)
        if metric and metric.zero and metric.zero != name:
            yield metric.zero, value
    if FORMAT_PART in metrics:
        yield FORMAT_TAG, FORMAT_SCALE * metrics[FORMAT_PART]
