"""The live view of a terminal: what the console prints, and below it a few lines that are redrawn.

    step 12/90 · updating · left 4 min
    reward    0.439 ▁▂▂▃▄▅▅▆▆▇█ 0.772
    held-out  30.2 % ▁▄▆█ 58.0 %
    asked     Make 5 from [10, 12, 14].
    best      1.1   14 - 12 = 2, 10 / 2 = 5, yes </think> <answer>10 / (14 - 12)</answer>
    worst     0     14 + 10 = 24, 24 - 12 = 12, no 12 + 10 = 22, 14 + ...

The cursor waits at the start of those lines, so whoever prints without asking, and a shell after a crash, writes over them;
nothing of the terminal is switched that would have to be switched back.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from grpo_zero.observe.console import Console, duration
from grpo_zero.observe.curve import sparkline
from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.terminal import one_line, show

if TYPE_CHECKING:
    from rich.text import Text

REDRAW_INTERVAL_S = 0.25
REDRAW_COST = 50.0
"""A drawing that took long is followed by a pause this many times as long: at most 2 % of the time go into drawing."""
CURVE_WIDTH = 40
MAX_CHARS = 1000
"""Of a text that is shown on one line."""
ERASE = "\r\x1b[J"
"""From the start of the line to the end of the screen."""
CURVES = {"train": ("reward", "reward"), "eval": ("eval/success", "held-out"), "sft": ("loss", "loss")}
"""Of each kind of record the metric drawn, and its label."""
PHASES = {"verify": "verifying", "update": "updating", "optimizer": "updating"}


class LiveView(Console):
    """A ``Console`` with the lines above; the arguments of ``Console``."""

    def __init__(
        self,
        num_steps: int | None = None,
        *,
        first_step: int = 0,
        max_minutes: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(num_steps, first_step=first_step, max_minutes=max_minutes, stream=stream, clock=clock)
        self._curves: dict[str, list[float]] = {label: [] for _, label in CURVES.values()}
        self._group: list[tuple[str, str, str]] = []
        self._doing, self._head, self._left = "", "", ""
        self._is_shown = False
        self._next_draw_s = clock()

    def write(self, record: StepRecord) -> None:
        """Prints the record's line and takes its numbers into the view."""
        name, label = CURVES[record.kind]
        value = record.metrics.get(name)
        if value is not None and value == value:
            self._curves[label].append(value)
        if record.kind != "eval":
            self._head = self._counter(record)
            left_s = self._left_s(record.step)
            self._left = f"left {duration(left_s)}" if left_s is not None else ""
        super().write(record)

    def line(self, text: str) -> None:
        """Prints a lasting line above the view, made harmless as the console's are."""
        self._stream.write(ERASE if self._is_shown else "")
        show(text, stream=self._stream)
        if self._is_shown:
            self._draw()
        self._stream.flush()

    def status(self, text: str) -> None:
        """Shows what is being done, a few times a second."""
        self._doing = one_line(text)
        self._is_shown = True
        if self._clock() >= self._next_draw_s:
            self._draw()

    def phase(self, name: str) -> None:
        """Shows the phase that begins; sampling has a status of its own."""
        if name in PHASES:
            self.status(PHASES[name])

    def show_group(self, question: str, best: tuple[float, str], worst: tuple[float, str]) -> None:
        """Shows them from the next drawing on."""
        self._group = [("asked", "", one_line(question[:MAX_CHARS]))]
        for label, (reward, answer) in (("best", best), ("worst", worst)):
            self._group.append((label, f"{reward:.3g}", one_line(answer[:MAX_CHARS])))

    def close(self) -> None:
        """Takes the view away."""
        if self._is_shown:
            self._stream.write(ERASE)
            self._stream.flush()
            self._is_shown = False

    def _draw(self) -> None:
        started = self._clock()
        size = shutil.get_terminal_size()
        lines = rendered(self._rows(), max(1, size.columns - 1), max(1, size.lines - 2))
        up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
        self._stream.write(ERASE + "\n".join(lines) + up + "\r")
        self._stream.flush()
        now = self._clock()
        self._next_draw_s = now + max(REDRAW_INTERVAL_S, REDRAW_COST * (now - started))

    def _rows(self) -> list[Text]:
        from rich.text import Text  # here, so that runs without a terminal never load it

        head = " · ".join(part for part in (self._head, self._doing, self._left) if part)
        rows = [Text(head, "bold")]
        for label, values in self._curves.items():
            if len(values) > 1:
                first, last = _shown(label, values[0]), _shown(label, values[-1])
                rows.append(Text.assemble(f"{label:<9} {first} ", (sparkline(values, CURVE_WIDTH), "cyan"), f" {last}"))
        colours = {"asked": "dim", "best": "green", "worst": "red"}
        for label, reward, text in self._group:
            lead = f"{label:<9} " + (f"{reward:<5} " if reward else "")
            rows.append(Text.assemble((lead, colours[label]), text))
        return rows


def rendered(rows: Sequence[Text], width: int, height: int) -> list[str]:
    """The rows with their colours as a terminal takes them, each cut to ``width`` columns; at most ``height``."""
    from rich.console import Console as RichConsole

    lines = []
    for row in rows[:height]:
        row.truncate(width, overflow="ellipsis")
        buffer = io.StringIO()
        painter = RichConsole(
            file=buffer, force_terminal=True, width=width + 1, highlight=False, markup=False, emoji=False
        )
        painter.print(row, end="", soft_wrap=True)
        lines.append(buffer.getvalue())
    return lines


def make_console(
    num_steps: int | None = None,
    *,
    first_step: int = 0,
    max_minutes: float | None = None,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Console:
    """A live view on a terminal that can show one, else plain lines; the arguments of ``Console``."""
    stream = stream if stream is not None else sys.stdout
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    is_able = stream.isatty() and environment.get("TERM", "") not in ("", "dumb") and encoding == "utf8"
    kind = LiveView if is_able else Console
    return kind(num_steps, first_step=first_step, max_minutes=max_minutes, stream=stream)


def _shown(label: str, value: float) -> str:
    return f"{100 * value:.1f} %" if label == "held-out" else f"{value:.3f}"
