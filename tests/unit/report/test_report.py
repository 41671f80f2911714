"""A report of a real, tiny run: one page that loads nothing, tells everything, and lets no answer act."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from helpers.healthy_run import EVALS, TRAIN
from helpers.runs import run_settings

import grpo_zero.report.write as write
from grpo_zero.cli import main
from grpo_zero.config import load_config
from grpo_zero.doctor.evidence import Evidence, read_run
from grpo_zero.report.answers import MAX_CHARS, choose, shortened
from grpo_zero.report.charts import charts_of
from grpo_zero.report.plots import SMOOTH, moving_average
from grpo_zero.runs import write_config

HOSTILE = "</pre><script>alert(1)</script>\x1b[31m\u202e<img src=http://a onerror=x>"


def sample(**changes: object) -> dict[str, object]:
    row = {"step": 30, "kind": "eval", "prompt": "Make 5.", "response": "2 + 3", "reward": 1.1, "reason": "right"}
    return {**row, "parts": {}, "finish_reason": "stop", "correct": True, **changes}


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """The healthy run's numbers, with hostile answers."""
    folder = tmp_path / "a <run>"
    folder.mkdir()
    write_config(folder, load_config("quickstart", ["training.learning_rate=3e-4"]))
    rows: list[dict[str, object]] = [
        {"step": step + 1, "kind": "train", **{name: values[step] for name, values in TRAIN.items()}}
        for step in range(30)
    ]
    rows += [{**row, "kind": "eval"} for row in EVALS]
    samples = [
        sample(),
        sample(prompt="Make 6.", response=HOSTILE, correct=False, reason=HOSTILE),
        sample(prompt="Make 7.", response="1 + 1 = 2, no", correct=False, finish_reason="length", reward=None),
    ]
    for name, lines in (("metrics.jsonl", rows), ("samples.jsonl", samples)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = {"seconds": 300.0, "peak_gib": 1.3, "machine": {"processor": "<Any>", "device": "cpu"}}
    (folder / "summary.json").write_text(json.dumps(summary | {"code": {"commit": "abc123"}}))
    return folder


class Page(HTMLParser):
    """Checks that tags are closed, and collects them."""

    VOID = {"meta", "br", "img", "link", "input"}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        for name, value in attrs:
            if name in ("src", "href", "xlink:href"):
                assert value
                assert value.startswith("#")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_tells_everything_and_loads_nothing(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_folder)]) == 0
    assert capsys.readouterr().out == f"report: {run_folder / 'report.html'}\n"
    text = (run_folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("svg") == page.tags.count("figure") == 9
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    for fact in ("a &lt;run&gt;", "30.2 %", "58.6 %", "55.8 % to 61.4 %", "Healthy: none of", "abc123", "&lt;Any&gt;"):
        assert fact in text, fact
    assert "<td>training.learning_rate</td><td>0.0003</td><td>1e-05</td>" in text
    assert "&lt;script&gt;" in text
    assert not set(text) & {"\x1b", "\u202e"}
    assert [text.count(f'class="example {kind}"') for kind in ("right", "wrong", "cut")] == [1, 1, 1]


def test_plots_stand_beside_the_page(run_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "mine.html"
    assert main(["report", str(run_folder), "--output", str(output)]) == 0
    pictures = sorted((tmp_path / "mine_plots").glob("*.png"))
    assert {path.stem for path in pictures} >= {"success", "reward", "groups", "length", "entropy", "time"}
    for path in pictures:
        content = path.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", content[16:24])
        assert width >= 2 * height > 600


def test_findings_are_on_the_page(run_folder: Path) -> None:
    write_config(run_folder, load_config("quickstart", ["training.skip_unfinished_episodes=true"]))
    text = write.write_report(run_folder).read_text(encoding="utf-8")
    assert '<article class="finding warning">' in text
    assert "docs/troubleshooting.md#truncation" in text


def test_equal_runs_give_equal_pages(run_folder: Path) -> None:
    first = write.write_report(run_folder).read_bytes()
    assert write.write_report(run_folder).read_bytes() == first


def test_a_report_without_a_place_is_refused(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run_folder), "--output", str(tmp_path / "no" / "r.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["report", str(run_folder), "--output", str(tmp_path)]) == 2
    assert "which is a folder" in capsys.readouterr().err


def test_a_run_with_few_numbers_has_a_page_too(tmp_path: Path) -> None:
    write_config(tmp_path, load_config(None))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "reward": 0.1, "loss": null}\n')
    text = write.write_report(tmp_path).read_text(encoding="utf-8")
    assert "<svg" not in text
    assert "still running" in text
    assert "None recorded." in text


def test_charts_follow_what_there_is() -> None:
    rows = [{"step": step, "kl_old": 0.0, "entropy": 1.0, "reward": 0.1 * step} for step in (1, 2)]
    assert [chart.name for chart in charts_of(Evidence(load_config(None), rows))] == ["reward", "entropy"]
    several = load_config(None, ["training.updates_per_rollout=2"])
    assert [chart.name for chart in charts_of(Evidence(several, rows))] == ["reward", "entropy", "kl"]


def test_answers_are_of_the_last_evaluation_and_of_different_questions() -> None:
    rows = [
        sample(step=0, prompt="old"),
        *(sample(prompt=f"q{number // 4}", response=str(number)) for number in range(16)),
        sample(kind="train", prompt="training"),
    ]
    assert [example.row["prompt"] for example in choose(rows)] == ["q0", "q1"]
    assert choose([]) == []
    assert len(shortened("x" * 9999)) < MAX_CHARS + 50
    assert "8399 characters" in shortened("x" * 9999)


def test_the_moving_average_keeps_a_straight_line() -> None:
    values = np.arange(40.0)
    assert moving_average(values)[SMOOTH:-SMOOTH] == pytest.approx(values[SMOOTH:-SMOOTH])
    assert moving_average(values[:5]) is not None
    assert list(moving_average(values[:5])) == list(values[:5])
    assert moving_average(np.full(30, 2.0)) == pytest.approx(2.0)


@pytest.mark.usefixtures("digits_task")
def test_a_run_writes_its_report_at_the_end(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = run_settings(model_folder, tmp_path, "training.report=true", "training.run_name=one")
    assert main(["train", *settings]) == 0
    assert f"report: {tmp_path / 'one' / 'report.html'}\n" in capsys.readouterr().out
    assert (tmp_path / "one" / "report.html").is_file()

    def fail(*_: object) -> None:
        raise ImportError("no drawing library")

    monkeypatch.setattr(write, "draw", fail)
    assert main(["train", *settings, "training.run_name=two"]) == 0
    out = capsys.readouterr().out
    assert "note: the report could not be written (ImportError: no drawing library)" in out
    assert read_run(tmp_path / "two").num_steps == 4


def test_nothing_is_drawn_with_before_it_is_needed() -> None:
    code = "import sys, grpo_zero.report.write, grpo_zero.observe.live\nassert not {'matplotlib', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_style_is_used(run_folder: Path) -> None:
    """A class that the page has and the style sheet lacks, or the other way round, is a slip."""
    write_config(run_folder, load_config("quickstart", ["training.skip_unfinished_episodes=true"]))
    text = write.write_report(run_folder).read_text(encoding="utf-8")
    style, _, body = text.partition("</style>")
    used = {name for names in re.findall(r'class="([^"]+)"', body) for name in names.split()}
    assert used <= set(re.findall(r"\.([a-z]+)", style))
