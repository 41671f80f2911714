"""Any of our tasks in TRL's GRPOTrainer: its prompts as a dataset, its verifier as reward functions, its numbers in our files.

    task = load_task("gsm8k")
    rows, held_out, _ = task.load("gsm8k/main", test_size=256)
    tokenizer = prepare_tokenizer(model, task)
    questions = dataset(task, rows)
    GRPOTrainer(
        model,
        reward_functions(task, tokenizer, questions),
        train_dataset=questions,
        processing_class=tokenizer,
        callbacks=[MetricsCallback("runs/trl")],
    ).train()

``examples/trl_gsm8k_lora.py`` runs it; ``docs/trl.md`` says how the two trainers differ. Raises ``ImportError`` without TRL.
"""

from __future__ import annotations

from importlib.util import find_spec

if not all(find_spec(package) for package in ("trl", "transformers", "datasets")):
    raise ImportError(
        "grpo_zero.bridges.trl needs TRL with transformers and datasets: `pip install 'grpo-zero[trl]'`, or in a checkout "
        "`uv sync --extra trl`."
    )

from grpo_zero.bridges.trl.metrics import MetricsCallback
from grpo_zero.bridges.trl.prompts import dataset, prepare_tokenizer
from grpo_zero.bridges.trl.rewards import reward_functions

__all__ = ["MetricsCallback", "dataset", "prepare_tokenizer", "reward_functions"]
