"""The fixed workloads, as settings of an ordinary run. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_zero.config import Config, load_config
from grpo_zero.errors import UserError, nearest


@dataclass(frozen=True, slots=True)
class Workload:
    """One step's shape. Every completion gets a random reward, so every group has a gradient."""

    what: str
    """For people."""
    needs: str
    """What ``--model`` has to name; empty where the model is packaged."""
    settings: tuple[str, ...]
    """Over those of ``config``. With random weights no completion ends by itself."""
    config: str | None = None
    """A packaged config; None = the defaults."""


def _shape(questions: int, samples: int, max_gen_len: int, micro_batch_tokens: int) -> tuple[str, ...]:
    return (
        f"training.num_questions_per_batch={questions}",
        f"training.batch_size={questions * samples}",
        f"training.max_gen_len={max_gen_len}",
        f"training.micro_batch_tokens={micro_batch_tokens}",
        "training.skip_unfinished_episodes=false",
        "training.learning_rate=1e-6",
    )


_ON_GPU = ("model.random_init=true", "model.device=cuda", "model.dtype=bfloat16")

WORKLOADS = {
    "W1": Workload(
        "shape of Qwen2.5-0.5B, random weights, 2 prompts x 4 completions x 32 tokens",
        "a folder with Qwen2.5-0.5B's config.json and tokenizer",
        ("model.random_init=true", "model.dtype=float32", *_shape(2, 4, 32, 4096)),
    ),
    "W2": Workload(
        "SmolLM2-135M-Instruct, 4 prompts x 8 completions x up to 128 tokens",
        "SmolLM2-135M-Instruct (folder or .gguf; benchmarks/fetch_smollm2.py gets one)",
        ("model.dtype=float32", *_shape(4, 8, 128, 1536)),
    ),
    "quickstart": Workload(
        "the packaged model and the quickstart's prompts, 24 x 16 completions x up to 128 tokens",
        "",
        _shape(24, 16, 128, 8192),
        config="quickstart",
    ),
    "GPU-0.5B": Workload(
        "shape of Qwen2.5-0.5B, random bf16 weights, 32 prompts x 8 completions x 256 tokens on a GPU",
        "a folder with Qwen2.5-0.5B's config.json and tokenizer",
        (*_ON_GPU, *_shape(32, 8, 256, 16384)),
    ),
    "GPU-3B": Workload(
        "shape of Qwen2.5-3B, random bf16 weights, 8-bit moments, 16 prompts x 8 completions x 256 tokens on a GPU",
        "a folder with Qwen2.5-3B's config.json and tokenizer",
        (*_ON_GPU, "training.moment_bits=8", *_shape(16, 8, 256, 16384)),
    ),
}

NUM_PROBLEMS = 64


def problem_rows(count: int) -> list[dict[str, object]]:
    """Countdown rows to pose; with the default wording a prompt has 120 to 130 tokens in Qwen's and SmolLM2's tokenizers."""
    rows = []
    for i in range(count):
        nums = [17 + i, 5, max(37, 40 - i), 3]
        rows.append({"nums": nums, "target": nums[0] + nums[1] + nums[2] - nums[3]})
    return rows


def workload_config(name: str, model: str | None, overrides: Sequence[str] = ()) -> Config:
    """The workload's settings with ``overrides`` over them.

    Raises:
        UserError: unknown workload, its model is not given, more questions than there are, or a bad override.
    """
    if name not in WORKLOADS:
        raise UserError(f"There is no workload {name!r}; known: {', '.join(WORKLOADS)}.{nearest(name, WORKLOADS)}")
    workload = WORKLOADS[name]
    if workload.needs and model is None:
        raise UserError(f"Workload {name} needs --model: {workload.needs}.")
    path = [f"model.pretrained_model_path={model}"] if model else []
    config = load_config(workload.config, [*workload.settings, *path, *overrides])
    if config.training.num_questions_per_batch > NUM_PROBLEMS:
        raise UserError(
            f"training.num_questions_per_batch is {config.training.num_questions_per_batch}, but the bench has "
            f"{NUM_PROBLEMS} questions: give at most that many."
        )
    return config
