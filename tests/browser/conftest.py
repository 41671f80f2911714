"""A real Chromium, driven by Playwright, on a dashboard of its own."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grpo_zero.dashboard.server import DashboardServer

SCREENSHOTS = Path(__file__).parents[2] / "docs" / "screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOCAL = ("http://127.0.0.1:", "data:")
"""Where the page may ask."""
LIBRARY_STYLE = "Applying inline style violates"
"""The chart library's style for maps, which the policy keeps out and no chart of ours needs: the one message that may appear."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """The browser; closed with each module, since Playwright's event loop may not be running in tests of other things."""
    playwright = pytest.importorskip("playwright.sync_api")
    pytest.importorskip("plotly")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """A function that serves a folder of runs and returns the page's address."""
    started: list[tuple[DashboardServer, threading.Thread]] = []

    def start(folder: Path) -> str:
        server = DashboardServer([folder], "127.0.0.1", 0)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        started.append((server, thread))
        return server.url

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def open_page(chromium: object) -> Iterator[Callable]:
    """A function that opens an address in a window; the test fails if the page reported an error or asked another server."""
    contexts, wrong = [], []

    def open_address(url: str, width: int = 1280, height: int = 800, **settings: object) -> object:
        context = chromium.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        page.on("request", lambda request: request.url.startswith(LOCAL) or wrong.append(request.url))
        page.goto(url)
        return page

    yield open_address
    for context in contexts:
        context.close()
    assert not [message for message in wrong if not message.startswith(LIBRARY_STYLE)]


@pytest.fixture
def shoot() -> Callable[[object, str], None]:
    """A function that keeps a picture for the docs, when GRPO_ZERO_SCREENSHOTS is set."""

    def picture(page: object, name: str) -> None:
        if os.environ.get("GRPO_ZERO_SCREENSHOTS"):
            page.mouse.move(0, 0)
            page.wait_for_timeout(1500)
            SCREENSHOTS.mkdir(exist_ok=True)
            page.screenshot(path=SCREENSHOTS / f"{name}.png")

    return picture
