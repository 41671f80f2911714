"""Live progress: one line a step, the same on a terminal and in a log file.

On a terminal a transient status line (``sampling 120/384``) is redrawn in between.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from grpo_zero.observe.catalogue import worries
from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.terminal import one_line, show

_REDRAW_INTERVAL_S = 0.1


class Console:
    """Prints step records as they come.

    Args:
        num_steps: the last step's number, None when only time ends the run.
        first_step: steps done before, when resuming.
        max_minutes: the run's time limit, which bounds the time left.
        stream: where to print; standard output by default.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        num_steps: int | None = None,
        *,
        first_step: int = 0,
        max_minutes: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._num_steps = num_steps
        self._first_step = first_step
        self._max_minutes = max_minutes
        self._stream = stream if stream is not None else sys.stdout
        self._clock = clock
        self._start_s = clock()
        self._is_terminal = self._stream.isatty()
        self._status_width = 0
        self._drawn_s = -_REDRAW_INTERVAL_S

    def write(self, record: StepRecord) -> None:
        """Prints the record's line."""
        if record.kind == "eval":
            self.line(_eval_line(record))
            return
        describe = _train_parts if record.kind == "train" else _sft_parts
        parts = [self._counter(record), *describe(record.metrics)]
        left_s = self._left_s(record.step)
        if left_s is not None:
            parts.append(f"left {duration(left_s)}")
        flagged = worries(record.metrics)
        if flagged:
            parts.append(f"check: {', '.join(flagged)}")
        self.line("  ".join(parts))

    def line(self, text: str) -> None:
        """Prints a lasting line, made harmless: it may hold what a model wrote."""
        self._erase_status()
        show(text, stream=self._stream)

    def status(self, text: str) -> None:
        """Redraws the transient line on a terminal, at most ten times a second; else nothing."""
        if not self._is_terminal or self._clock() - self._drawn_s < _REDRAW_INTERVAL_S:
            return
        self._drawn_s = self._clock()
        # A line that wraps cannot be erased with a carriage return.
        text = one_line(text)[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + text.ljust(self._status_width))
        self._stream.flush()
        self._status_width = len(text)

    def phase(self, name: str) -> None:
        """A phase of a step begins (``observe/phases.py``); only a live view shows it."""

    def show_group(self, question: str, best: tuple[float, str], worst: tuple[float, str]) -> None:
        """A question of the last step with its best and worst answer, each as reward and text; only a live view shows it."""

    def close(self) -> None:
        """Leaves the terminal clean."""
        self._erase_status()

    def _erase_status(self) -> None:
        if self._status_width:
            self._stream.write("\r" + " " * self._status_width + "\r")
            self._stream.flush()
            self._status_width = 0

    def _counter(self, record: StepRecord) -> str:
        label = "step" if record.kind == "train" else record.kind
        if self._num_steps is None:
            return f"{label} {record.step}"
        return f"{label} {record.step:>{len(str(self._num_steps))}}/{self._num_steps}"

    def _left_s(self, step: int) -> float | None:
        """Seconds to the end at the mean pace so far, evaluations included."""
        spent_s = self._clock() - self._start_s
        ends = []
        if self._num_steps is not None and step > self._first_step:
            ends.append((self._num_steps - step) * spent_s / (step - self._first_step))
        if self._max_minutes is not None:
            ends.append(max(0.0, self._max_minutes * 60 - spent_s))
        return min(ends) if ends else None


def duration(seconds: float) -> str:
    """``48 s``, ``12 min`` or ``3 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _train_parts(metrics: Mapping[str, float]) -> list[str]:
    parts = []
    if "reward" in metrics:
        split = [
            f"{name.removeprefix('reward/')} {value:.2f}"
            for name, value in metrics.items()
            if name.startswith("reward/")
        ]
        parts.append(f"reward {metrics['reward']:.3f}" + (f" ({', '.join(split)})" if split else ""))
    if "success" in metrics:
        parts.append(f"success {_percent(metrics['success'])}")
    if "length" in metrics:
        parts.append(f"length {metrics['length']:.0f}")
    if "tokens_per_s_sample" in metrics:
        parts.append(f"{metrics['tokens_per_s_sample']:,.0f} tokens/s")
    if "step_s" in metrics:
        parts.append(f"{metrics['step_s']:.1f} s")
    return parts


def _sft_parts(metrics: Mapping[str, float]) -> list[str]:
    formats = {
        "loss": "loss {:.4f}",
        "learning_rate": "learning rate {:.1e}",
        "tokens_per_s_update": "{:,.0f} tokens/s",
    }
    return [text.format(metrics[name]) for name, text in formats.items() if name in metrics]


def _eval_line(record: StepRecord) -> str:
    metrics = record.metrics
    parts = []
    for name, label in (("eval/success", "success"), ("eval/greedy_success", "greedy")):
        if name not in metrics:
            continue
        text = f"{label} {_percent(metrics[name])}"
        if f"{name}_low" in metrics:
            low, high = metrics[f"{name}_low"], metrics[f"{name}_high"]
            text += f" (95 %: {100 * low:.1f} to {100 * high:.1f})"
        parts.append(text)
    if "eval/num_problems" in metrics:
        parts.append(f"{metrics['eval/num_problems']:.0f} problems")
    if "eval/length" in metrics:
        parts.append(f"length {metrics['eval/length']:.0f}")
    if "eval/truncated_share" in metrics:
        parts.append(f"truncated {_percent(metrics['eval/truncated_share'])}")
    return f"eval at step {record.step}:  " + "  ".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
