"""Imports go one way, down the layers of the design (section 3.5); what must start at once imports no torch."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_zero

PACKAGE = Path(grpo_zero.__file__).parent
LAYERS = [
    {
        "grpo_zero",
        "types",
        "errors",
        "json_text",
        "allocator",
        "out_of_memory",
        "randomness",
        "settings",
        "presets",
        "config",
        "changes",
        "runs",
        "packaged",
    },
    {"text", "tasks", "reference", "observe", "algorithms"},
    {"scores", "doctor"},
    {"report", "dashboard"},
    {"model"},
    {"plan"},
    {"checkpoint"},
    {"rollout"},
    {"train"},
    {"bench"},
    {"bridges"},
    {"commands"},
    {"cli"},
]
"""Lowest first: modules and folders of the package. One may import its own layer and those below."""
SIBLINGS_ARE_STRANGERS = [{"text", "tasks", "reference", "observe", "algorithms"}]
"""Folders of one layer that must not know each other."""
TORCH_FREE = [
    "types",
    "errors",
    "json_text",
    "allocator",
    "out_of_memory",
    "randomness",
    "settings",
    "presets",
    "config",
    "changes",
    "runs",
    "packaged",
    "cli",
    "text",
    "tasks",
    "reference",
    "observe",
    "scores",
    "doctor",
    "report",
]
TORCH_FREE += [
    "rollout.scheduler",
    "model.spec",
    "model.families",
    "bench.workloads",
    "plan",
    "commands.plan",
    "commands.doctor",
]
TORCH_FREE += ["dashboard", "commands.dashboard"]


def module_name(path: Path) -> str:
    """``rollout.engine`` of ``rollout/engine.py``; ``rollout`` of its ``__init__.py``; ``grpo_zero`` of the package's own."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "grpo_zero"


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(name: str, *, at_start_only: bool = False) -> set[str]:
    """Modules of this package that ``name`` imports, inside functions too unless ``at_start_only``."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    nodes = tree.body if at_start_only else ast.walk(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import; write grpo_zero.{node.module}"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full.removeprefix("grpo_zero.") in MODULES else str(node.module))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    ours = {full.removeprefix("grpo_zero.") for full in found if full.split(".")[0] == "grpo_zero"}
    return {target for target in ours if target in MODULES} - {name}


def level(name: str) -> int:
    top = name.split(".")[0]
    levels = [index for index, names in enumerate(LAYERS) if top in names]
    assert levels, f"{top} has no place in the layers; give it one in this test and in the design"
    return levels[0]


def test_the_graph_is_read() -> None:
    assert "train.loop" in imports_of("train.run")
    assert "train.run" in imports_of("cli"), "imports inside functions count"
    assert "train.run" not in imports_of("cli", at_start_only=True)
    assert len(MODULES) > 40


@pytest.mark.parametrize("name", MODULES)
def test_no_module_imports_upwards(name: str) -> None:
    upward = [target for target in imports_of(name) if level(target) > level(name)]
    assert not upward, f"{name} imports {', '.join(upward)} of a higher layer"


@pytest.mark.parametrize("name", MODULES)
def test_strangers_do_not_know_each_other(name: str) -> None:
    top = name.split(".")[0]
    for strangers in SIBLINGS_ARE_STRANGERS:
        if top in strangers:
            met = {target.split(".")[0] for target in imports_of(name)} & strangers - {top}
            assert not met, f"{name} imports {', '.join(met)}"


def test_nothing_needs_a_bridge_and_bridges_need_no_trainer() -> None:
    """Bridges lead to optional packages, so only they may import them, and they see tasks, text and records alone."""
    for name in MODULES:
        targets = {target.split(".")[0] for target in imports_of(name)}
        if name.startswith("bridges"):
            assert targets <= {"bridges", "tasks", "text", "observe", "errors", "types"}, name
        else:
            assert "bridges" not in targets, name
            assert not other_packages(name) & {"trl", "transformers", "datasets", "peft", "accelerate"}, name


def other_packages(name: str) -> set[str]:
    """Packages that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found


def test_there_is_no_cycle() -> None:
    graph = {name: imports_of(name) for name in MODULES}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError and names the modules


def test_only_the_command_line_hides_imports_of_the_package() -> None:
    """A lazy import within the package is how a cycle gets past a reader."""
    hiding = {name for name in MODULES if imports_of(name) - imports_of(name, at_start_only=True)}
    assert hiding <= {"cli"}


def test_what_must_start_at_once_imports_no_torch() -> None:
    names = [name for name in MODULES if any(name == free or name.startswith(free + ".") for free in TORCH_FREE)]
    assert {"observe.console", "tasks.countdown", "text.tokenizer", "rollout.scheduler", "plan.planner"} <= set(names)
    lines = [f"import grpo_zero.{name}\nassert 'torch' not in sys.modules, {name!r}" for name in names]
    code = "import sys\n" + "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_model_knows_nothing_of_engine_loss_or_optimizer() -> None:
    """Border 3; and border 1: engine and losses never see text, tasks never see token ids."""
    tops = {folder: set() for folder in ("model", "rollout", "algorithms", "tasks")}
    for name in MODULES:
        folder = name.split(".")[0]
        if folder in tops:
            tops[folder] |= {target.split(".")[0] for target in imports_of(name)} - {folder}
    assert tops["model"] <= {"errors", "types"}
    assert tops["rollout"] <= {"allocator", "out_of_memory", "model", "types", "randomness", "errors", "observe"}
    watched = {target for name in MODULES if name.startswith("rollout") for target in imports_of(name)}
    assert {target for target in watched if target.startswith("observe")} == {"observe.phases"}
    assert tops["algorithms"] <= {"types", "errors"}
    assert tops["tasks"] <= {"types", "errors", "randomness"}
