"""One readable line a step; carriage returns on a terminal only."""

from __future__ import annotations

import io

import pytest

from grpo_zero.observe.console import Console, duration
from grpo_zero.observe.record import StepRecord


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


TRAIN = {
    "reward": 0.412,
    "reward/format": 0.092,
    "reward/answer": 0.32,
    "success": 0.32,
    "length": 143.4,
    "tokens_per_s_sample": 1234.5,
    "step_s": 3.21,
    "truncated_share": 0.25,
}


def test_train_line() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(200, stream=stream, clock=clock)
    clock.now_s += 50
    console.write(StepRecord(step=10, kind="train", metrics=TRAIN))
    assert stream.getvalue() == (
        "step  10/200  reward 0.412 (format 0.09, answer 0.32)  success 32.0 %  length 143  "
        "1,234 tokens/s  3.2 s  left 16 min  check: truncated_share\n"
    )


def test_time_left_counts_from_the_resumed_step_and_respects_the_time_limit() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(20, first_step=10, max_minutes=1, stream=stream, clock=clock)
    clock.now_s += 4
    console.write(StepRecord(step=12, kind="train", metrics={}))
    clock.now_s += 46
    console.write(StepRecord(step=13, kind="train", metrics={}))
    assert stream.getvalue() == "step 12/20  left 16 s\nstep 13/20  left 10 s\n"


def test_eval_line_has_the_interval() -> None:
    stream = io.StringIO()
    metrics = {
        "eval/success": 0.3125,
        "eval/success_low": 0.238,
        "eval/success_high": 0.397,
        "eval/greedy_success": 0.36,
        "eval/length": 140.2,
        "eval/truncated_share": 0.02,
    }
    Console(stream=stream).write(StepRecord(step=10, kind="eval", metrics=metrics))
    assert stream.getvalue() == (
        "eval at step 10:  success 31.2 % (95 %: 23.8 to 39.7)  greedy 36.0 %  length 140  truncated 2.0 %\n"
    )


def test_sft_line() -> None:
    stream = io.StringIO()
    metrics = {"loss": 1.25, "learning_rate": 1e-3, "tokens_per_s_update": 5000.0}
    Console(stream=stream).write(StepRecord(step=10, kind="sft", metrics=metrics))
    assert stream.getvalue() == "sft 10  loss 1.2500  learning rate 1.0e-03  5,000 tokens/s\n"


def test_log_file_gets_no_status_and_no_control_characters() -> None:
    stream = io.StringIO()
    console = Console(stream=stream)
    console.status("sampling 120/384")
    console.line("done")
    console.close()
    assert stream.getvalue() == "done\n"


def test_terminal_status_is_redrawn_and_erased() -> None:
    stream, clock = Terminal(), Clock()
    console = Console(stream=stream, clock=clock)
    console.status("sampling 120/384")
    clock.now_s += 0.05
    console.status("too soon to draw")
    clock.now_s += 0.2
    console.status("updating")
    console.line("step 1")
    assert "too soon" not in stream.getvalue()
    assert shown(stream.getvalue()) == ["step 1", ""]
    console.status("s" * 1000)
    console.close()
    assert shown(stream.getvalue()) == ["step 1", ""]


def shown(text: str) -> list[str]:
    """What a terminal shows: a carriage return goes back, and what follows overwrites."""
    lines = []
    for line in text.split("\n"):
        cells = ""
        for piece in line.split("\r"):
            cells = piece + cells[len(piece) :]
        lines.append(cells.rstrip())
    return lines


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (3600, "60 min"),
        (7500, "2 h 05 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
