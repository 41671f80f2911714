"""A plan as text: where each gigabyte goes, and the settings that were chosen."""

from __future__ import annotations

from dataclasses import asdict

from grpo_zero.plan.phases import GIB
from grpo_zero.plan.planner import SAFETY_SHARE, Plan
from grpo_zero.settings import show


def table(plan: Plan) -> str:
    """Items by phase, GiB; the largest phase is the peak."""
    lines = [f"{'GiB':32}" + "".join(f"{name:>12}" for name in plan.phases)]
    for place in ("device", "host"):
        phases = [getattr(phase, place) for phase in plan.phases.values()]
        if not any(phases):
            continue
        name = "host" if place == "host" else "GPU" if plan.job.device == "cuda" else "memory"
        items = dict.fromkeys(item for phase in (phases[1], *phases) for item in phase)
        lines += [name, *(_row(f"  {item}", [phase.get(item) for phase in phases]) for item in items)]
        lines.append(_row("  together", [sum(phase.values()) for phase in phases]))
    return "\n".join(lines)


def settings(plan: Plan) -> str:
    """The choice as overrides of a command."""
    return " ".join(f"training.{name}={show(value)}" for name, value in asdict(plan.choice).items())


def report(plan: Plan) -> str:
    """What ``grpo-zero plan`` prints."""
    margin = (
        f"{SAFETY_SHARE:.0%} of the memory is left free; lengths are taken at their limits, so most steps take less."
    )
    return "\n".join((plan.line, "", table(plan), "", margin, settings(plan)))


def _row(name: str, sizes: list[int | None]) -> str:
    return f"{name:32}" + "".join(f"{'-':>12}" if size is None else f"{size / GIB:12.2f}" for size in sizes)
