"""The answers in a real browser: groups side by side, filters, one question through training; a hostile model's text as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.recorded import PROMPT, eval_metrics, line, sample, start_run, write_steps

SCRIPT = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'><b>bold</b> &lt;i&gt; &amp; **md** "
    "[a](javascript:hacked)"
)
TURNED = "abc \u202egnp.exe\u202c \u200bhidden\u2066 \x1b[31m end"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_steps(start_run(tmp_path / "runs" / "baseline", 60), 0, 60, 60)
    return tmp_path / "runs"


def test_any_steps_groups(runs: Path, serve: Callable, open_page: Callable, shoot: Callable) -> None:
    page = open_page(f"{serve(runs)}#view=answers&run=baseline")
    page.get_by_text("Step 60: 4 of 4 groups").wait_for()
    groups = page.locator(".group")
    groups.nth(2).locator("summary").first.click()
    cards = groups.nth(2).locator(".answer")
    cards.first.wait_for()
    assert cards.count() == 4
    words = cards.nth(1).text_content()  # inner_text is empty until a card was painted
    for part in (
        "2 right",
        "reward",
        "1.1",
        "advantage",
        "+1",
        "40 tokens",
        "itself",
        "format 0.1",
        "answer 1",
        "step 60, answer 1",
    ):
        assert part in words, part
    assert "length limit" in cards.nth(3).text_content()
    first, second = (cards.nth(at).bounding_box() for at in (0, 1))
    assert first["y"] == second["y"], "side by side"
    groups.nth(0).locator("summary").first.click()
    shoot(page, "answers")
    page.get_by_label("Earlier step").click()
    page.get_by_text("Step 59: 4 of 4 groups").wait_for()
    page.get_by_label("Step", exact=True).fill("17")
    page.keyboard.press("Enter")
    page.get_by_text("Step 17: 4 of 4 groups").wait_for()
    page.locator(".answer pre").first.get_by_text("step 17, answer 0").wait_for()
    page.get_by_role("button", name="Newest: 60").click()
    page.get_by_text("Step 60: 4 of 4 groups").wait_for()


def test_tokens_are_coloured_by_log_prob_and_by_what_the_update_does(
    runs: Path, serve: Callable, open_page: Callable, shoot: Callable
) -> None:
    answer = "So 5 😀 it is."
    tokens = {"token_characters": [2, 2, 0, 2, 7, 0], "token_logprobs": [-0.01, -1.0, -0.5, -3.5, -0.2, -0.9]}
    rows = [
        sample(1, "train", PROMPT.format(target=5, numbers="5"), answer, mark, advantage) | tokens
        for mark, advantage in (("right", 2.0), ("wrong", -0.5), ("wrong", None))
    ]
    run = start_run(runs / "coloured", 1, questions=1, answers=3)
    (run / "metrics.jsonl").write_text(line({"step": 1, "kind": "train", "reward": 0.5}))
    (run / "samples.jsonl").write_text("".join(map(line, rows)), encoding="utf-8")
    page = open_page(f"{serve(runs)}#view=answers&run=coloured")
    texts = page.locator(".answer pre")
    texts.nth(2).wait_for()
    assert texts.first.text_content() == f"{answer}end"
    assert not texts.first.locator(".stop").is_visible(), "no colours, no sign at the end"
    page.get_by_label("Colour tokens by").select_option("log-prob")
    assert page.locator(".token-key").is_visible()
    fill = "one => getComputedStyle(one).backgroundColor"

    def colours(text: object) -> list[tuple[str, str]]:
        spans = text.locator("span[title]")
        return [(span.text_content(), span.evaluate(fill)) for span in (spans.nth(at) for at in range(spans.count()))]

    unlikely = [
        (" 5", "rgba(145, 84, 210, 0.22)"),
        (" 😀", "rgba(145, 84, 210, 0.42)"),
        (" it is.", "rgba(145, 84, 210, 0.12)"),
        ("end", "rgba(145, 84, 210, 0.22)"),
    ]
    assert colours(texts.first) == unlikely
    told = texts.first.locator("span[title]").nth(1).get_attribute("title")
    assert told.startswith("log-prob −4, probability 0.0183")
    page.get_by_label("Colour tokens by").select_option("push")
    up, down, none = ([fill for _, fill in colours(texts.nth(at))] for at in range(3))
    assert up == [f"rgba(28, 118, 214, {size})" for size in (0.32, 0.42, 0.12, 0.32)]
    assert down == [f"rgba(226, 104, 20, {size})" for size in (0.12, 0.32, 0.12, 0.12)]
    assert set(none) == {"rgba(0, 0, 0, 0)"}, "an answer without an advantage is not pushed"
    page.reload()
    texts.nth(2).wait_for()
    assert page.get_by_label("Colour tokens by").input_value() == "push", "the address keeps it"
    page.goto(page.url.replace("run=coloured", "run=baseline").replace("step=1", "step=60"))
    page.locator(".group").nth(2).locator("summary").first.click()
    page.locator(".group").nth(2).locator(".answer").first.wait_for()
    page.locator(".group").nth(0).locator("summary").first.click()
    shoot(page, "tokens")


@pytest.mark.parametrize(
    ("chosen", "num_groups", "num_answers"), [("right", 3, 4), ("wrong", 3, 4), ("truncated", 2, 1), ("zero", 2, 4)]
)
def test_filters(
    chosen: str, num_groups: int, num_answers: int, runs: Path, serve: Callable, open_page: Callable
) -> None:
    page = open_page(f"{serve(runs)}#view=answers&run=baseline")
    page.get_by_text("Step 60: 4 of 4 groups").wait_for()
    page.get_by_label("Show").select_option(chosen)
    page.get_by_text(f"Step 60: {num_groups} of 4 groups").wait_for()
    cards = page.locator(".group").first.locator(".answer")
    cards.first.wait_for()
    assert cards.count() == num_answers
    if chosen != "zero":
        assert all(f" {chosen}" in words for words in cards.locator("h3").all_text_contents())


def test_one_question_through_training(runs: Path, serve: Callable, open_page: Callable, shoot: Callable) -> None:
    page = open_page(f"{serve(runs)}#view=answers&run=baseline&kind=eval&step=30")
    page.get_by_text("Step 30: 4 of 4 groups").wait_for()
    page.locator(".group").nth(2).locator("summary").first.click()
    page.locator(".group").nth(2).get_by_text("Follow this question").click()
    page.get_by_role("heading", name="Make 22 from [4, 3, 7].").wait_for()
    assert page.locator(".history .group").count() == 7
    shoot(page, "question")
    page.locator(".history .group").nth(3).locator("summary").click()
    page.get_by_text("step 30, answer 1").wait_for()
    page.get_by_label("Find").fill("make 21")
    assert page.locator(".questions button").count() == 1
    page.locator(".questions button").click()
    page.get_by_role("heading", name="Make 21 from [3, 3, 7].").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Make 22 from [4, 3, 7].").wait_for()


def test_a_new_step_does_not_take_away_what_is_read(runs: Path, serve: Callable, open_page: Callable) -> None:
    run = start_run(runs / "young", 20)
    write_steps(run, 0, 3, 20)
    page = open_page(f"{serve(runs)}#view=answers&run=young")
    page.get_by_text("Step 3: 4 of 4 groups").wait_for()
    write_steps(run, 4, 5, 20)
    page.get_by_role("button", name="Newest: 5").wait_for()
    assert page.get_by_text("Step 3: 4 of 4 groups").is_visible()


def test_answers_that_are_still_being_written_come_in(runs: Path, serve: Callable, open_page: Callable) -> None:
    """A step's numbers are in its file before all of its answers are."""
    run = start_run(runs / "young", 20)
    write_steps(run, 0, 3, 20)
    samples = run / "samples.jsonl"
    whole = samples.read_bytes()
    samples.write_bytes(b"".join(whole.splitlines(keepends=True)[:-8]))
    page = open_page(f"{serve(runs)}#view=answers&run=young")
    page.get_by_text("Step 3: 2 of 2 groups").wait_for()
    samples.write_bytes(whole)
    page.get_by_text("Step 3: 4 of 4 groups").wait_for()


def test_a_hostile_models_text_is_text(tmp_path: Path, serve: Callable, open_page: Callable, shoot: Callable) -> None:
    run = start_run(tmp_path / "runs" / "hostile", 1, questions=1, answers=4)
    prompt = PROMPT.format(target="<img src=x onerror='window.hacked = 1'>", numbers=SCRIPT)
    texts = [SCRIPT, TURNED, "x" * 1_000_000, "</pre></article><h1>out</h1>\u2028 \ufeff"]
    rows = [sample(1, "train", prompt, text, "wrong", 0.5) | {"reason": SCRIPT} for text in texts]
    rows += [sample(1, "eval", prompt, text, "wrong") | {"parts": {"<b>bold</b>": 0.1}} for text in texts]
    (run / "samples.jsonl").write_text("".join(map(line, rows)), encoding="utf-8")
    metrics = {
        "reward": 0.5,
        "reward/<img src=x onerror='window.hacked = 1'>": 0.5,
        'reward/<a href="javascript:hacked()">x</a>': 0.2,
    }
    (run / "metrics.jsonl").write_text(
        line({"step": 1, "kind": "train", **metrics}) + line({"step": 1, "kind": "eval", **eval_metrics(0.5)})
    )
    url = serve(tmp_path / "runs")
    page = open_page(f"{url}#view=answers&run=hostile")
    cards = page.locator(".answer")
    cards.first.wait_for()
    shown = cards.locator("pre").all_text_contents()
    assert shown[0] == SCRIPT
    assert shown[1] == "abc U+202Egnp.exeU+202C U+200BhiddenU+2066 U+001B[31m end"
    assert shown[2] == "x" * 2000
    assert shown[3].startswith("</pre></article><h1>out</h1>U+2028")
    assert cards.locator(".reason").first.text_content().startswith(SCRIPT)
    shoot(page, "hostile")
    more = cards.nth(2).get_by_role("button")
    assert more.inner_text() == "Show more: 2,000 of 1,000,000 characters are shown"
    more.click()
    page.get_by_text("52,000 of 1,000,000").wait_for()
    assert cards.nth(2).locator("pre").text_content() == "x" * 52_000
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.get_by_role("button", name="One question").click()
    page.locator(".questions button").click()
    page.locator(".history .answer").first.wait_for()
    page.get_by_role("button", name="Charts").click()
    panel = page.locator('[data-panel="reward"]')
    panel.locator(".plot-container").wait_for()
    panel.hover()
    page.wait_for_timeout(500)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main h1, main b, main script, main a").count() == 0
