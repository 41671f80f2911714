"""axe finds no serious fault in any view, light or dark, wide or narrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.recorded import PROMPT, line, sample, start_run, write_steps

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("colour", ["surprise", "push"])
def test_coloured_tokens_can_be_read(
    colour: str, scheme: str, tmp_path: Path, serve: Callable, open_page: Callable
) -> None:
    """In every strength, with a mark that cannot be seen within the token, and the sign at the end."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    run = start_run(tmp_path / "runs" / "coloured", 1, questions=1, answers=2)
    tokens = {"token_characters": [2, 2, 2, 2, 0], "token_logprobs": [-0.2, -1.0, -2.0, -4.0, -4.0]}
    rows = [sample(1, "train", PROMPT, "a\u200b" * 4, "right", advantage) | tokens for advantage in (1.0, -1.0)]
    (run / "samples.jsonl").write_text("".join(map(line, rows)), encoding="utf-8")
    (run / "metrics.jsonl").write_text(line({"step": 1, "kind": "train", "reward": 0.5}))
    page = open_page(
        f"{serve(tmp_path / 'runs')}#view=answers&run=coloured&colour={colour}", 1280, 900, color_scheme=scheme
    )
    page.locator(".answer .stop").nth(1).wait_for()
    assert page.locator(".answer span[title]").count() == 10
    found = axe.run(page, options={"runOnly": ["color-contrast"]}).response
    judged = [target for one in found["passes"] for node in one["nodes"] for target in node["target"]]
    assert any("mark" in target for target in judged), judged
    assert not found["violations"], [node["target"] for one in found["violations"] for node in one["nodes"]]
