"""The page beside a real run of the packaged model: it appears, grows and ends without a reload."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

IS_PICTURE = bool(os.environ.get("GRPO_ZERO_SCREENSHOTS"))
"""Then the quickstart's own sizes are taken, for a run that has something to show; minutes instead of seconds."""
NUM_STEPS, NUM_QUESTIONS = (16, 24) if IS_PICTURE else (3, 4)
SETTINGS = [
    "training.run_name=live",
    f"training.max_steps={NUM_STEPS}",
    f"training.eval_interval={4 if IS_PICTURE else 3}",
    "data.test_size=128" if IS_PICTURE else "data.test_size=8",
]
if not IS_PICTURE:
    SETTINGS += [
        "training.batch_size=16",
        f"training.num_questions_per_batch={NUM_QUESTIONS}",
        "training.max_gen_len=48",
        "data.train_size=64",
    ]


def test_a_run_is_watched_from_its_start_to_its_end(
    tmp_path: Path, serve: Callable, open_page: Callable, shoot: Callable
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    page = open_page(serve(runs))
    page.get_by_text("There is no run yet").wait_for()
    command = [sys.executable, "-m", "grpo_zero.cli", "train", *SETTINGS, f"training.log_dir={runs}"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            page.set_default_timeout(240_000)
            page.locator("#runs li", has_text="live").wait_for()
            page.locator('[data-panel="success"] .plot-container').wait_for()
            page.locator('[data-panel="reward"] .plot-container').wait_for()
            if IS_PICTURE:
                page.get_by_text(re.compile("step 1[2-5] of")).wait_for()
                shoot(page, "live")
            page.locator("#runs li", has_text="live").get_by_text("finished").wait_for()
            assert process.wait(timeout=240) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
    for panel, last in (("success", NUM_STEPS), ("reward", NUM_STEPS)):
        newest = f"""() => document.querySelector('[data-panel="{panel}"] .chart').data.at(-1).x.at(-1)"""
        for _ in range(100):
            if page.evaluate(newest) == last:
                break
            page.wait_for_timeout(100)
        assert page.evaluate(newest) == last, panel
    page.get_by_role("button", name="Answers").click()
    page.get_by_text(f"Step {NUM_STEPS}: {NUM_QUESTIONS} of {NUM_QUESTIONS} groups").wait_for()
    card = page.locator(".answer").first
    card.wait_for()
    assert "tokens" in card.text_content(), "a run writes how many tokens an answer has"
    page.get_by_label("Colour tokens by").select_option("surprise")
    coloured = card.locator("pre span[title]")
    assert coloured.first.get_attribute("title").startswith("log-prob ")
    assert coloured.count() > 3, "a run writes each token's log-prob"
