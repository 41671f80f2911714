"""Is a long run's page there at once? A generated run of 10,000 steps x 256 answers in a real Chromium.

    python benchmarks/large_dashboard.py [--repeats 5] [--write]

Writes ``benchmarks/results/dashboard.json``: milliseconds from opening the address (each time in a fresh browser profile, the
server's first answer among them) to the first paint, to the first chart, to the two at the top, and of the frames of a scroll;
bytes that were fetched of how many. Needs chromium, and 4 GB of room for the run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, sync_playwright
from provenance import commit

from grpo_zero.dashboard.server import DashboardServer
from grpo_zero.train.recorder import machine_facts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.long_run import FIRST_PAINT, FRAMES, SHAPE, STEPS, write_long_run

PATH = Path(__file__).parent / "results" / "dashboard.json"
NOW = "performance.now()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="replace the committed results")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("There is no chromium here: apt-get install chromium.")
    with tempfile.TemporaryDirectory() as folder:
        run = write_long_run(Path(folder) / "large")
        run_bytes = sum(path.stat().st_size for path in run.iterdir())
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            rows = [visit(browser, Path(folder)) for _ in range(options.repeats)]
            version = browser.version
            browser.close()
    result = {
        "commit": commit(),
        "command": "python benchmarks/large_dashboard.py --write",
        "steps": STEPS,
        "answers_per_step": SHAPE["questions"] * SHAPE["answers"],
        "run_bytes": run_bytes,
        "repeats": options.repeats,
        "median": {key: round(statistics.median(row[key] for row in rows), 1) for key in rows[0]},
        "largest": {key: round(max(row[key] for row in rows), 1) for key in rows[0]},
        "chromium": version,
        "machine": machine_facts(torch.device("cpu")),
    }
    print(json.dumps(result, indent=1))
    if options.write:
        PATH.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def visit(browser: Browser, folder: Path) -> dict[str, Any]:
    """Open the charts and scroll, then the answers of one step, with a server that has read nothing yet."""
    server = DashboardServer([folder], "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    fetched: list[int] = []
    page.on("response", lambda reply: fetched.append(len(reply.body())) if "/api/" in reply.url else None)
    found: dict[str, Any] = {}
    try:
        page.goto(f"{server.url}#run=large")
        page.locator(".chart .plot-container").first.wait_for()
        found["first_chart_ms"] = page.evaluate(NOW)
        page.locator('[data-panel="reward"] .plot-container').wait_for()
        found["two_charts_ms"] = page.evaluate(NOW)
        found["first_paint_ms"] = page.evaluate(FIRST_PAINT)
        page.wait_for_timeout(1500)
        frames = page.evaluate(FRAMES)
        found["frame_ms"], found["slow_frame_ms"] = frames[len(frames) // 2], frames[int(0.95 * len(frames))]
        found["fetched_bytes_charts"] = sum(fetched)
        fetched.clear()
        page.goto("about:blank")
        page.goto(f"{server.url}#view=answers&run=large&step=7777")
        page.get_by_text("step 7777, answer 0").first.wait_for()
        found["answers_ms"] = page.evaluate(NOW)
        found["fetched_bytes_answers"] = sum(fetched)
    finally:
        context.close()
        server.shutdown()
        thread.join()
        server.server_close()
    return found


if __name__ == "__main__":
    main()
