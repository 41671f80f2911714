"""The live view on a terminal of our own, which understands the few escapes that it may use; plain lines elsewhere."""

from __future__ import annotations

import io
import os
import re
import shutil
import time
import unicodedata

import pytest

from grpo_zero.observe.console import Console
from grpo_zero.observe.curve import sparkline
from grpo_zero.observe.live import LiveView, make_console, rendered
from grpo_zero.observe.record import StepRecord
from grpo_zero.observe.terminal import harmless, one_line

HOSTILE = "\x1b[2J\x1b]0;title\x07\r\x08\x9b31m\u202eevil\u2028\x00 fine"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def shown(self) -> list[str]:
        """The screen: text overwrites, ``ESC[J`` clears what follows, ``ESC[nA`` goes up, colours are nothing."""
        lines, row, column = [""], 0, 0
        for piece in re.findall(r"\x1b\[[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.getvalue()):
            if piece == "\r":
                column = 0
            elif piece == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif piece.endswith("A") and piece[0] == "\x1b":
                row -= int(piece[2:-1])
            elif piece == "\x1b[J":
                lines[row:] = [lines[row][:column]]
            elif piece[0] == "\x1b":
                assert piece.endswith("m"), f"{piece!r} is no colour"
            else:
                lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + len(piece) :]
                column += len(piece)
        return [line.rstrip() for line in lines]


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Columns and lines of the terminal, to be changed by the test."""
    size = [80, 24]
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size(size))
    return size


def view_of_two_steps(terminal: Terminal, clock: Clock) -> LiveView:
    view = LiveView(10, stream=terminal, clock=clock)
    view.line("a first line")
    for step, reward in ((1, 0.25), (2, 0.75)):
        clock.now_s += 5
        view.write(StepRecord(step, "eval", {"eval/success": reward / 2}))
        view.write(StepRecord(step, "train", {"reward": reward}))
    view.show_group("Make 5\nfrom [2, 3].", (1.1, "2 + 3\n</think>"), (0.0, HOSTILE))
    return view


def test_it_stands_below_the_lines_and_leaves_nothing_behind(size: list[int]) -> None:
    terminal, clock = Terminal(), Clock()
    view = view_of_two_steps(terminal, clock)
    before = terminal.shown()
    assert before[0] == "a first line"
    assert before[-2].startswith("step  2/10  reward 0.750")
    view.status("sampling 3/8")
    assert terminal.shown()[len(before) - 1 :] == [
        "step  2/10 · sampling 3/8 · left 40 s",
        "reward    0.250 ▁█ 0.750",
        "held-out  12.5 % ▁█ 37.5 %",
        "asked     Make 5 from [2, 3].",
        "best      1.1   2 + 3 </think>",
        "worst     0     " + one_line(HOSTILE),
    ]
    view.line("saved")
    assert terminal.shown()[len(before) - 1 :][:2] == ["saved", "step  2/10 · sampling 3/8 · left 40 s"]
    view.close()
    assert terminal.shown() == [*before[:-1], "saved", ""]
    view.close()
    assert terminal.shown() == [*before[:-1], "saved", ""]


def test_the_lines_are_those_of_the_plain_console(size: list[int]) -> None:
    terminal, plain = Terminal(), io.StringIO()
    clock = Clock()
    view = LiveView(4, stream=terminal, clock=clock)
    console = Console(4, stream=plain, clock=clock)
    for record in (
        StepRecord(0, "eval", {"eval/success": 0.5, "eval/length": 9.0}),
        StepRecord(1, "train", {"reward": 0.1, "reward/answer": 0.1, "truncated_share": 0.7, "step_s": 2.0}),
        StepRecord(2, "sft", {"loss": 1.0, "learning_rate": 1e-3}),
    ):
        clock.now_s += 1
        for output in (view, console):
            output.write(record)
            output.status("sampling 1/2")
    view.close()
    assert terminal.shown() == plain.getvalue().split("\n")


def test_it_is_drawn_a_few_times_a_second(size: list[int]) -> None:
    terminal, clock = Terminal(), Clock()
    view = LiveView(stream=terminal, clock=clock)
    for number in range(1000):
        clock.now_s += 0.001
        view.status(f"sampling {number}")
    assert 3 <= terminal.getvalue().count("sampling") <= 5


def test_a_slow_terminal_is_drawn_on_less_often(size: list[int]) -> None:
    class Slow(Terminal):
        def flush(self) -> None:
            clock.now_s += 0.1

    clock = Clock()
    terminal = Slow()
    view = LiveView(stream=terminal, clock=clock)
    start_s = clock.now_s
    while clock.now_s < start_s + 60:
        clock.now_s += 0.01
        view.status("sampling")
    assert terminal.getvalue().count("sampling") * 0.1 <= 0.03 * 60


@pytest.mark.parametrize("columns", [1, 2, 7, 20, 39])
@pytest.mark.parametrize("lines", [1, 2, 3, 50])
def test_no_terminal_is_too_small(size: list[int], columns: int, lines: int) -> None:
    size[:] = [columns, lines]
    terminal, clock = Terminal(), Clock()
    view = LiveView(10, stream=terminal, clock=clock)
    view.write(StepRecord(1, "train", {"reward": 0.1}))
    view.write(StepRecord(2, "train", {"reward": 0.2}))
    view.show_group("三つの数 " * 9, (1.0, "好" * 99), (0.0, HOSTILE))
    kept = terminal.shown()
    view.status("sampling 1/8")
    drawn = terminal.shown()[len(kept) - 1 :]
    assert 1 <= len(drawn) <= max(1, lines - 2)
    for line in drawn:
        width = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)
        assert width <= max(1, columns - 1)
    view.close()
    assert terminal.shown() == kept


def test_phases_within_a_step_are_named(size: list[int]) -> None:
    terminal, clock = Terminal(), Clock()
    view = LiveView(stream=terminal, clock=clock)
    for name, words in (("update", "updating"), ("verify", "verifying")):
        clock.now_s += 10
        view.phase(name)
        assert terminal.shown() == [words]
    clock.now_s += 10
    view.phase("decode")
    assert terminal.shown() == ["verifying"]


def test_what_a_model_wrote_can_do_nothing() -> None:
    text = harmless(HOSTILE + "\n\tnext")
    assert text.endswith(" fine\n\tnext")
    assert "evil" in text
    assert not set(text) & set("\x1b\x07\r\x08\x9b\u202e\x00")
    assert one_line(" a\n\n b\tc ") == "a b c"


def test_answers_are_no_markup(size: list[int]) -> None:
    from rich.text import Text

    assert rendered([Text("[red]x[/red] :smile: [link=http://a]")], 60, 5) == ["[red]x[/red] :smile: [link=http://a]"]


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 40) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert len(set(sparkline([3, 3, 3], 40))) == 1
    assert sparkline([], 40) == ""


def test_only_a_terminal_that_can_show_it_gets_it() -> None:
    class Latin(Terminal):
        encoding = "latin-1"

    terminal = {"TERM": "xterm"}
    assert isinstance(make_console(stream=Terminal(), environment=terminal), LiveView)
    for stream, environment in (
        (io.StringIO(), terminal),
        (Terminal(), {"TERM": "dumb"}),
        (Terminal(), {}),
        (Latin(), terminal),
    ):
        assert type(make_console(stream=stream, environment=environment)) is Console


def test_drawing_takes_little_time(size: list[int]) -> None:
    terminal = Terminal()
    view = LiveView(10, stream=terminal)
    view.show_group("q", (1.0, "x" * 100_000), (0.0, "y" * 100_000))
    view.status("sampling")  # imports rich
    start_s = time.perf_counter()
    for _ in range(10_000):
        view.status("sampling")
    assert time.perf_counter() - start_s < 1.0


def test_lines_and_status_of_any_text_move_nothing() -> None:
    stream = Terminal()
    view = LiveView(stream=stream, clock=Clock())
    view.line(HOSTILE)
    view.status(HOSTILE)
    view.line(HOSTILE)
    view.close()
    assert stream.shown()[:2] == [harmless(HOSTILE)] * 2
    assert "\x1b[2J" not in stream.getvalue()
