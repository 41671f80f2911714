"""What an evaluation found, as text for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from grpo_zero.scores.answers import Decoding
from grpo_zero.scores.paired import CHANCE

MOST_CLASSES = 20
"""Classes of difficulty that are shown; the document has all."""
_CELL = 26


def table(name: str, found: Mapping[str, Any]) -> str:
    """A column for each way of decoding, a row for each number; ``found`` is of ``summary``."""
    columns = {kind: found[kind] for kind in get_args(Decoding) if kind in found}
    heads = [
        "greedy" if kind == "greedy" else f"sampled, {column['num_samples']} each" for kind, column in columns.items()
    ]
    rows: list[tuple[str, list[str]]] = [("", heads)]

    def add(label: str, *path: str, show: Any = None) -> None:
        cells = [_at(column, path) for column in columns.values()]
        if any(cell is not None for cell in cells):
            rows.append((label, ["-" if cell is None else (show or _share)(cell) for cell in cells]))

    add("success", "success")
    for note in _keys(columns, "notes"):
        add(f"  {note}", "notes", note)
    for k in _keys(columns, "pass_at"):
        add(f"pass@{k}", "pass_at", k)
    add("reward", "reward", show="{:.3f}".format)
    for part in _keys(columns, "parts"):
        add(f"  {part}", "parts", part, show="{:.3f}".format)
    add("tokens", "length", show="{:.1f}".format)
    add("truncated", "truncated_share", show=_percent)
    if any(column["failed_share"] for column in columns.values()):
        add("verification failed", "failed_share", show=_percent)
    classes = _keys(columns, "by_difficulty")  # a single one is all there is
    if len(classes) > MOST_CLASSES:
        rows.append((f"{len(classes)} classes of difficulty", ["too many to show here"]))
    elif len(classes) > 1:
        rows.append(("success by difficulty", []))
        first = next(iter(columns.values()))["by_difficulty"]
        for label in classes:
            add(f"  {label} ({first[label]['num_problems']})", "by_difficulty", label, "success")
    width = max(len(label) for label, _ in rows) + 3
    lines = [(label.ljust(width) + "".join(cell.ljust(_CELL) for cell in cells)).rstrip() for label, cells in rows]
    return "\n".join([f"{name}: {found['num_problems']} problems (95 % intervals over problems)", *lines])


def sentences(name: str, other: str, differences: Mapping[str, Mapping[str, float]], num_samples: int) -> list[str]:
    """Whether ``name`` and ``other`` differ beyond chance, one sentence for each way of decoding.

    Args:
        name, other: the two models.
        differences: of ``summary.differences``.
        num_samples: sampled answers a problem, the larger number of the two.
    """
    found = []
    for decoding, facts in differences.items():
        is_single = decoding == "greedy" or num_samples == 1
        test = "McNemar's exact test" if is_single else "exact sign-flip test over problems"
        chance = "beyond chance" if facts["p_value"] < CHANCE else "within chance"
        found.append(
            f"{decoding}: {name} is {_points(facts['mean'])} {other} (95 %: {100 * facts['low']:+.1f} to "
            f"{100 * facts['high']:+.1f}), {chance} (p {_p_value(facts['p_value'])}, {test}; better on "
            f"{facts['num_better']} problems, worse on {facts['num_worse']})"
        )
    return found


def _points(mean: float) -> str:
    if mean == 0:
        return "level with"
    return f"{100 * abs(mean):.1f} points {'above' if mean > 0 else 'below'}"


def _p_value(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"= {p:.2g}"


def _keys(columns: Mapping[str, Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(key for column in columns.values() for key in column.get(name, {})))


def _at(column: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = column
    for name in path:
        if name not in found:
            return None
        found = found[name]
    return found


def _share(facts: Mapping[str, float]) -> str:
    if "low" not in facts:
        return f"{facts['mean']:.3f}"
    return f"{_percent(facts['mean'])} ({100 * facts['low']:.1f} to {100 * facts['high']:.1f})"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
