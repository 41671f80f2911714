"""10,000 steps of 256 answers: the page is there at once, asks for what it shows, and scrolls."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.long_run import FIRST_PAINT, FRAMES, STEPS, write_long_run


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with such a run; its gigabytes are given back."""
    runs = tmp_path_factory.mktemp("large") / "runs"
    write_long_run(runs / "large")
    yield runs
    shutil.rmtree(runs)


def test_charts_of_a_long_run(large: Path, serve: Callable, open_page: Callable) -> None:
    page = open_page("about:blank")
    sizes: dict[str, int] = {}
    page.on(
        "response",
        lambda reply: (
            sizes.update({reply.url.partition("/api/")[2]: len(reply.body())}) if "/api/" in reply.url else None
        ),
    )
    page.goto(f"{serve(large)}#run=large")
    page.locator('[data-panel="success"] .plot-container').wait_for()
    page.locator('[data-panel="reward"] .plot-container').wait_for()
    page.wait_for_timeout(1000)
    assert page.evaluate(FIRST_PAINT) < 2000
    asked = [name for name in sizes if name.startswith("series")]
    assert 2 <= len(asked) < 12, "panels out of view are not asked for"
    assert max(sizes.values()) < 200_000
    assert page.evaluate("""() => document.querySelector('[data-panel="reward"] .chart').data[0].x.length""") <= 1200
    frames = page.evaluate(FRAMES)
    assert frames[len(frames) // 2] < 50, "milliseconds of the middle one"


def test_answers_of_any_step_of_a_long_run(large: Path, serve: Callable, open_page: Callable) -> None:
    assert (large / "large" / "samples.jsonl").stat().st_size > 900_000_000
    url = serve(large)
    page = open_page(f"{url}#view=answers&run=large&step=7777")
    page.get_by_text("Step 7777: 32 of 32 groups").wait_for()
    page.get_by_text("step 7777, answer 0").first.wait_for()
    assert page.evaluate(FIRST_PAINT) < 2000
    page.goto(f"{url}#view=question&run=large&question=5")
    page.get_by_role("heading", name="Make 25 from [7, 3, 7].").wait_for()
    assert page.locator(".history .group").count() == STEPS // 100 + 1
