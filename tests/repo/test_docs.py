"""What users see, runs: configs load, the README's commands parse, tables and figures are those of their sources."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_zero.cli import parse
from grpo_zero.config import load_config, packaged_configs
from grpo_zero.observe.catalogue import markdown_table
from grpo_zero.presets import PRESETS, AlgorithmConfig, with_preset
from grpo_zero.settings import field_names

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(page: Path) -> list[str]:
    """Every ``grpo-zero ...`` or ``train.py ...`` command in the page's bash blocks, comments removed."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.split("  #")[0] for block in blocks for line in block.splitlines()]
    return [line for line in lines if "grpo-zero " in line or "train.py" in line]


@pytest.mark.parametrize("name", [*packaged_configs(), "config.yaml", "config_24GB.yaml"])
def test_every_config_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    load_config(name)


def test_configs_stand_where_the_layout_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert load_config("configs/quickstart.yaml") == load_config("quickstart")


def test_warm_start_and_quickstart_ask_alike() -> None:
    for pair in (("quickstart", "quickstart_sft"), ("quickstart", "quickstart_sft_long"), ("smollm2", "smollm2_sft")):
        first, second = map(load_config, pair)
        assert replace(first.data, train_size=1) == replace(second.data, train_size=1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for line in commands(page):
        words = shlex.split(line)
        if "grpo-zero" in words:
            words = words[words.index("grpo-zero") + 1 :]
        else:
            words = ["train", *words[words.index("train.py") + 1 :]]
        if "--help" in words:
            continue
        options = parse(words)
        if hasattr(options, "overrides"):
            load_config(options.config, options.overrides)


def test_readme_begins_with_the_two_commands() -> None:
    first, second = re.findall(r"```bash\n(.*?)\n```", README, re.DOTALL)[:2]
    assert first == "pip install uv && uv run grpo-zero train"
    assert second == "pip install uv && uv run --group test pytest"
    assert second in (ROOT / ".ci" / "run").read_text()


def test_metrics_page_is_the_catalogue() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == markdown_table()


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_figures_are_those_of_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    for page, sections in tables.SECTIONS.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert tables.filled(text, sections) == text, "run python benchmarks/tables.py"
        for name in sections:
            assert f"<!-- {name} -->" in text


def test_the_algorithms_page_names_everything() -> None:
    """Every preset with its parts as they are, every function of both packages, every key of the section."""
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    presets = page.partition("## Presets")[2].partition("## Parts")[0]
    rows = {line.split("`")[1]: line for line in presets.splitlines() if line.startswith("| `")}
    for preset in PRESETS:
        algorithm = AlgorithmConfig(**with_preset({"preset": preset}))
        cells = [cell.strip() for cell in rows[preset].split("|")]
        assert cells[3:7] == [algorithm.baseline, algorithm.scale, algorithm.objective, algorithm.ratio_level]
        assert cells[8] == algorithm.average
        if algorithm.objective == "clipped":
            assert [float(cell) for cell in cells[7].split(",")] == [algorithm.clip_low, algorithm.clip_high]
    for key in field_names(AlgorithmConfig):
        assert f"`{key}" in page or key in ("preset", "std"), key
    for package in ("algorithms", "reference"):
        for path in (ROOT / "grpo_zero" / package).glob("[!_]*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and path.stem != "toy":
                    name = node.name.removesuffix("_gradient")
                    assert f"`{path.stem}.{name}`" in page, f"{path.stem}.{node.name}"


def test_memory_page_is_the_planners() -> None:
    spec = importlib.util.spec_from_file_location("memory_page", ROOT / "benchmarks" / "memory_page.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    text = page.PAGE.read_text(encoding="utf-8")
    assert "| Qwen2.5-7B | 24 |" in text
    assert page.filled(text) == text, "run python benchmarks/memory_page.py"


def test_fast_paths_train_as_their_plain_twins() -> None:
    """What docs/benchmarks.md says of the curves: equal answers in every step, and sums within 1e-5."""
    result = json.loads((ROOT / "benchmarks" / "results" / "same_curve.json").read_text(encoding="utf-8"))
    for name, found in result["variants"].items():
        if name != "8-bit moments":
            assert found["equal_steps"] == result["steps"], name
            assert max(found["difference"].values()) < 1e-5, name
