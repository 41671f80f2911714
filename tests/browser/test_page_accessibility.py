"""axe finds no serious fault in any view, light or dark, wide or narrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.recorded import start_run, write_steps

VIEWS = {"charts": ".plot-container", "answers": ".answer", "question&question=2": ".history .answer"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_serious_fault(
    width: int, view: str, scheme: str, tmp_path: Path, serve: Callable, open_page: Callable
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    write_steps(start_run(tmp_path / "runs" / "baseline", 20), 0, 20, 20)
    page = open_page(f"{serve(tmp_path / 'runs')}#view={view}&run=baseline", width, 900, color_scheme=scheme)
    page.locator(VIEWS[view]).first.wait_for()
    page.locator("summary", has_text="What this shows").first.click() if view == "charts" else None
    found = axe.run(page).response
    assert len(found["passes"]) > 15
    faults = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert not faults, [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in faults]
