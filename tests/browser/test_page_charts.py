"""The charts in a real browser: drawn, explained, compared, zoomed, live; on a phone, in the dark, by keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.recorded import start_run, write_steps

from grpo_zero.observe.catalogue import CATALOGUE


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for seed, name in enumerate(("baseline", "more-answers")):
        run = start_run(folder / name, 60)
        write_steps(run, 0, 60, 60, seed=seed)
        (run / "plan.json").write_text('{"planned_gib": 10.4}')
    return folder


def drawn(page: object, panel: str) -> object:
    """The panel, once its chart is drawn."""
    found = page.locator(f'[data-panel="{panel}"]')
    found.scroll_into_view_if_needed()
    found.locator(".plot-container").wait_for()
    return found


def test_every_panel_draws_and_explains_itself(
    runs: Path, serve: Callable, open_page: Callable, shoot: Callable
) -> None:
    page = open_page(f"{serve(runs)}#run=baseline")
    drawn(page, "success")
    panels = page.locator("[data-panel]")
    keys = [panels.nth(at).get_attribute("data-panel") for at in range(panels.count())]
    assert len(keys) == 15
    assert not {"failed", "rounds", "notes"} & set(keys), "what was not recorded has no panel"
    shoot(page, "charts")
    for key in keys:
        panel = drawn(page, key)
        panel.locator(".explain summary").click()
        name = panel.locator("dt code").first.inner_text()
        metric = CATALOGUE[name.split("/")[0] + "/<part>"] if name.startswith("reward/") else CATALOGUE[name]
        words = panel.locator("dl").inner_text()
        assert metric.definition in words
        assert metric.healthy in words
        assert metric.unit in words
    labels = page.locator('[data-panel="seconds"] .legend-name').all_inner_texts()
    assert labels[:2] == ["prefill", "sampling"]


def test_the_worrying_region_is_shaded_and_flagged(runs: Path, serve: Callable, open_page: Callable) -> None:
    page = open_page(f"{serve(runs)}#run=baseline")
    panel = drawn(page, "truncated")
    shade = panel.locator(".shapelayer path, .layer-below path").first.get_attribute("style")
    assert "214, 84, 24" in shade
    assert "worry: truncated_share above 0.1" in panel.locator(".annotation").first.text_content()
    assert "check truncated_share" in panel.locator(".flag").inner_text()
    assert drawn(page, "entropy").locator(".flag").is_hidden()


def test_planned_memory_is_a_level(runs: Path, serve: Callable, open_page: Callable) -> None:
    panel = drawn(open_page(f"{serve(runs)}#run=baseline"), "memory")
    assert "planned 10.4 GiB" in panel.locator(".annotation").all_text_contents()


def test_runs_are_compared(runs: Path, serve: Callable, open_page: Callable, shoot: Callable) -> None:
    page = open_page(f"{serve(runs)}#run=baseline")
    drawn(page, "reward")
    page.get_by_role("checkbox", name="more-answers").check()
    names = page.locator('[data-panel="reward"] .legend-name')
    page.locator('[data-panel="reward"] .legend .spot').first.wait_for()
    assert names.all_inner_texts() == ["reward", "reward/format", "reward/answer"]
    assert page.locator('[data-panel="reward"] .scatterlayer .trace').count() == 6
    assert page.locator(".key li").all_inner_texts() == ["baseline", "more-answers"]
    swatches = drawn(page, "entropy").locator(".legend .spot")
    first, second = (swatches.nth(at).evaluate("one => one.style.color") for at in (0, 1))
    assert first != second
    assert drawn(page, "seconds").locator(".note").inner_text().startswith("Of baseline alone")
    page.evaluate("scrollTo(0, 0)")
    shoot(page, "comparison")
    page.get_by_role("checkbox", name="baseline").uncheck()
    page.locator('[data-panel="reward"] .legend .spot').first.wait_for(state="detached")
    assert page.locator('[data-panel="reward"] .scatterlayer .trace').count() == 3
    page.reload()
    drawn(page, "reward")
    assert page.get_by_role("checkbox", name="more-answers").is_checked(), "the address keeps what is shown"


def test_zooming_one_chart_zooms_all(runs: Path, serve: Callable, open_page: Callable) -> None:
    page = open_page(f"{serve(runs)}#run=baseline")
    area = drawn(page, "reward").locator(".nsewdrag").bounding_box()
    drawn(page, "success")
    page.mouse.move(area["x"] + 0.5 * area["width"], area["y"] + 40)
    page.mouse.down()
    page.mouse.move(area["x"] + 0.75 * area["width"], area["y"] + 42, steps=5)
    page.mouse.up()
    page.wait_for_url("**first=*")
    first = int(page.get_by_label("first step shown").input_value())
    assert 20 < first < 40
    ranges = """key => document.querySelector(`[data-panel="${key}"] .chart`).layout.xaxis.range"""
    for _ in range(50):
        if page.evaluate(ranges, "success")[0] == first:
            break
        page.wait_for_timeout(100)
    assert page.evaluate(ranges, "success")[0] == first
    page.get_by_label("Show", exact=True).select_option("10")
    page.wait_for_url("**mean=10*")
    page.get_by_role("button", name="All steps").click()
    assert page.get_by_label("first step shown").input_value() == ""


def test_it_lives(runs: Path, serve: Callable, open_page: Callable) -> None:
    """What a run writes appears without a reload, and the file is read from where it was left."""
    run = start_run(runs / "young", 20)
    write_steps(run, 0, 3, 20)
    page = open_page(f"{serve(runs)}#run=young")
    drawn(page, "reward")
    last = """() => document.querySelector('[data-panel="reward"] .chart').data[0].x.at(-1)"""
    assert page.evaluate(last) == 3
    assert page.locator("#status").inner_text().endswith("live")
    write_steps(run, 4, 9, 20)
    page.get_by_text("step 9 of 20").wait_for()
    for _ in range(50):
        if page.evaluate(last) == 9:
            break
        page.wait_for_timeout(100)
    assert page.evaluate(last) == 9
    write_steps(run, 10, 20, 20)
    page.locator("li", has_text="young").get_by_text("finished").wait_for()


def test_on_a_phone_nothing_is_wider_than_the_window(
    runs: Path, serve: Callable, open_page: Callable, shoot: Callable
) -> None:
    url = serve(runs)
    page = open_page(f"{url}#run=baseline", 390, 844, has_touch=True, is_mobile=True, color_scheme="dark")
    drawn(page, "success")
    assert page.locator("#runs").is_hidden()
    shoot(page, "phone")
    page.get_by_text("Runs (1 of 2)").click()
    assert page.get_by_role("checkbox", name="baseline").is_visible()
    for view in ("Answers", "One question", "Charts"):
        page.get_by_role("button", name=view).click()
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


def test_dark_and_light(runs: Path, serve: Callable, open_page: Callable, shoot: Callable) -> None:
    page = open_page(f"{serve(runs)}#run=baseline", color_scheme="dark")
    drawn(page, "success")
    background = "getComputedStyle(document.body).backgroundColor"
    dark, dark_line = page.evaluate(background), line_colour(page)
    shoot(page, "dark")
    page.get_by_label("Colours").select_option("light")
    light = page.evaluate(background)
    assert sum(map(int, light[4:-1].split(","))) > 600 > 200 > sum(map(int, dark[4:-1].split(",")))
    page.wait_for_timeout(1000)
    assert line_colour(page) != dark_line
    page.reload()
    assert page.evaluate(background) == light, "the browser keeps the choice"


def line_colour(page: object) -> str:
    return page.locator('[data-panel="success"] .scatterlayer .js-line').last.evaluate(
        "one => getComputedStyle(one).stroke"
    )


def test_by_keyboard_alone(runs: Path, serve: Callable, open_page: Callable, shoot: Callable) -> None:
    page = open_page(f"{serve(runs)}#run=baseline")
    drawn(page, "success")
    focused = "document.activeElement.textContent.trim()"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.get_by_role("checkbox", name="baseline").is_checked(), "what was shown still is"
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", reached
    assert reached[:3] == ["first step shown", "last step shown", "All steps"]
    assert reached[4].startswith("Doctor: ")
    assert reached[5].startswith("eval/success")
    shoot(page, "keyboard")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.keyboard.press("Space")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "false"
    lines = """() => document.querySelector('[data-panel="success"] .chart').data.length"""
    for _ in range(50):
        if page.evaluate(lines) == 2:
            break
        page.wait_for_timeout(100)
    assert page.evaluate(lines) == 2, "a line and its interval of two are left"


def test_the_doctor_speaks_above_the_charts(runs: Path, serve: Callable, open_page: Callable, shoot: Callable) -> None:
    ill = start_run(runs / "ill", 60)
    write_steps(ill, 0, 60, 60)
    path = ill / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps(row | {"truncated_share": 0.9} if row["kind"] == "train" else row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    page = open_page(f"{serve(runs)}#run=ill")
    box = page.locator("details.findings")
    box.locator("summary", has_text=re.compile(r"Doctor: \d+ finding")).wait_for()
    box.locator("summary").click()
    titles = box.locator("h3").all_inner_texts()
    assert any(title.endswith("Truncation") for title in titles), titles
    assert "docs/troubleshooting.md#truncation" in box.inner_text()
    shoot(page, "doctor")
