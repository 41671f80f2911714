"""The tables of docs/memory.md, by the planner: ``python benchmarks/memory_page.py`` fills them in."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gpu_models import SHAPES

from grpo_zero.config import load_config
from grpo_zero.errors import UserError
from grpo_zero.plan.job import job_of
from grpo_zero.plan.phases import GIB
from grpo_zero.plan.planner import plan
from grpo_zero.plan.table import table

PAGE = Path(__file__).parents[1] / "docs" / "memory.md"
SPECS = {f"Qwen2.5-{size}": SHAPES[size] for size in ("0.5B", "3B", "7B")}


def items() -> str:
    """One model on one GPU, item by item."""
    return f"```text\n{table(plan(job_of(load_config(), SPECS['Qwen2.5-3B'], 'cuda'), 24 * GIB))}\n```"


def choices() -> str:
    """What is chosen for each model on each GPU."""
    lines = [
        "| model | GPU, GiB | recompute | offload | slots | micro-batch tokens | GPU peak, GiB | host, GiB |",
        "|---" * 8 + "|",
    ]
    for name, spec in SPECS.items():
        for gib in (16, 24, 48, 80):
            try:
                found = plan(job_of(load_config(), spec, "cuda"), gib * GIB)
            except UserError:
                lines.append(f"| {name} | {gib} | does not fit | | | | | |")
                continue
            choice = found.choice
            cells = (choice.recompute_activations, "yes" if choice.memory_efficient_adamw else "no", choice.num_slots)
            sizes = f"{found.device_bytes / GIB:.1f} | {found.host_bytes / GIB:.1f}"
            lines.append(f"| {name} | {gib} | {' | '.join(map(str, cells))} | {choice.micro_batch_tokens} | {sizes} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """The page with its tables as the planner makes them."""
    for name, make in {"items": items, "choices": choices}.items():
        text = re.sub(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", rf"\g<1>{make()}\n\g<2>", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
