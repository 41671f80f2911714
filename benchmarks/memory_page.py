"""The tables of docs/memory.md, by the planner: ``python benchmarks/memory_page.py`` fills them in."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gpu_models import SHAPES

from grpo_zero.config import Config, load_config
from grpo_zero.errors import UserError
from grpo_zero.plan.job import job_of
from grpo_zero.plan.phases import GIB
from grpo_zero.plan.planner import plan
from grpo_zero.plan.table import table

PAGE = Path(__file__).parents[1] / "docs" / "memory.md"
LORA_CONFIG = "gsm8k_lora_16GB"
HEAD = """| model | GPU, GiB | recompute | offload | slots | micro-batch tokens | GPU peak, GiB | host, GiB |
|---|---|---|---|---|---|---|---|"""


def items() -> str:
    """One model on one GPU, item by item."""
    return f"```text\n{table(plan(job_of(load_config(), SHAPES['3B'], 'cuda'), 24 * GIB))}\n```"


def choices() -> str:
    """What is chosen for each model on each GPU where all weights are trained."""
    return "\n".join(
        [HEAD, *(row(load_config(), size, gib) for size in ("0.5B", "3B", "7B") for gib in (16, 24, 48, 80))]
    )


def lora() -> str:
    """The same with adapters."""
    config = load_config(LORA_CONFIG)
    return "\n".join([HEAD, *(row(config, size, gib) for size in ("0.5B", "1.5B", "3B", "7B") for gib in (16, 24))])


def row(config: Config, size: str, gib: int) -> str:
    """One model on one GPU."""
    name = f"Qwen2.5-{size}"
    try:
        found = plan(job_of(config, SHAPES[size], "cuda"), gib * GIB)
    except UserError:
        return f"| {name} | {gib} | does not fit | | | | | |"
    choice = found.choice
    cells = (choice.recompute_activations, "yes" if choice.memory_efficient_adamw else "no", choice.num_slots)
    sizes = f"{found.device_bytes / GIB:.1f} | {found.host_bytes / GIB:.1f}"
    return f"| {name} | {gib} | {' | '.join(map(str, cells))} | {choice.micro_batch_tokens} | {sizes} |"


def filled(text: str) -> str:
    """The page with its tables as the planner makes them."""
    for name, make in {"items": items, "choices": choices, "lora": lora}.items():
        text = re.sub(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", rf"\g<1>{make()}\n\g<2>", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
