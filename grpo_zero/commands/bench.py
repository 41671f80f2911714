"""``grpo-zero bench``: the time and memory of one GRPO step on a fixed workload, with random rewards."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grpo_zero.algorithms.advantages import advantages
from grpo_zero.config import ModelConfig, TrainingConfig, config_from_dict
from grpo_zero.errors import UserError, nearest
from grpo_zero.observe.files import write_summary
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.metrics import device_peak_gib
from grpo_zero.train.optimizer import AdamW, make_optimizer
from grpo_zero.train.policy import Policy, load_policy, set_recompute
from grpo_zero.train.problems import make_task
from grpo_zero.train.recorder import machine_facts
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update


@dataclass(frozen=True, slots=True)
class Workload:
    """One step's shape. Every completion gets a random reward, so every group has a gradient."""

    what: str
    """For people."""
    num_prompts: int
    num_samples: int
    max_new_tokens: int
    random_init: bool
    """Random weights: only config and tokenizer of the model folder are read, and no completion ends by itself."""
    micro_batch_tokens: int
    needs: str
    """What ``--model`` has to name; empty where the model is packaged."""


WORKLOADS = {
    "W1": Workload(
        "shape of Qwen2.5-0.5B, random weights, 2 prompts x 4 completions x 32 tokens",
        num_prompts=2,
        num_samples=4,
        max_new_tokens=32,
        random_init=True,
        micro_batch_tokens=4096,
        needs="a folder with Qwen2.5-0.5B's config.json and tokenizer",
    ),
    "W2": Workload(
        "SmolLM2-135M-Instruct, 4 prompts x 8 completions x up to 128 tokens",
        num_prompts=4,
        num_samples=8,
        max_new_tokens=128,
        random_init=False,
        micro_batch_tokens=1536,
        needs="SmolLM2-135M-Instruct (folder or .gguf; benchmarks/fetch_smollm2.py gets one)",
    ),
    "quickstart": Workload(
        "the packaged model, 24 prompts x 16 completions x up to 128 tokens",
        num_prompts=24,
        num_samples=16,
        max_new_tokens=128,
        random_init=False,
        micro_batch_tokens=8192,
        needs="",
    ),
}

PROBLEMS = [{"nums": [17 + i, 5, 40 - i, 3], "target": 17 + i + 5 + 40 - i - 3} for i in range(32)]
"""Countdown rows to pose; with the default wording a prompt has about 130 tokens in Qwen's and SmolLM2's tokenizers."""


def bench(workload_name: str, model: str | None, repeats: int, json_path: Path | None) -> dict[str, Any]:
    """Time ``repeats`` steps after one warm-up step, print the medians, write all figures to ``json_path`` when given.

    Raises:
        UserError: unknown workload, or its model is not given.
    """
    if workload_name not in WORKLOADS:
        known = ", ".join(WORKLOADS)
        raise UserError(f"There is no workload {workload_name!r}; known: {known}.{nearest(workload_name, WORKLOADS)}")
    workload = WORKLOADS[workload_name]
    if workload.needs and model is None:
        raise UserError(f"Workload {workload_name} needs --model: {workload.needs}.")
    path = model or "embedded:countdown-tiny"
    policy = load_policy(ModelConfig(pretrained_model_path=path, random_init=workload.random_init), init_seed=0)
    prompts = [
        policy.prompt_ids(make_task(config_from_dict({})).problem(row)) for row in PROBLEMS[: workload.num_prompts]
    ]
    config = TrainingConfig(micro_batch_tokens=workload.micro_batch_tokens)
    set_recompute(policy.decoder, config)
    optimizer = make_optimizer(policy.decoder, config)
    steps = [_step(policy, optimizer, prompts, workload, config, step) for step in range(repeats + 1)][1:]
    result = {
        "workload": workload_name,
        **asdict(workload),
        "prompt_tokens": [len(prompt) for prompt in prompts],
        "weights": policy.decoder.spec.num_parameters,
        "dtype": str(policy.decoder.embedding.weight.dtype).removeprefix("torch."),
        "repeats": repeats,
        **{key: _spread([step[key] for step in steps]) for key in steps[0]},
        "peak_gib": round(device_peak_gib(policy.decoder.device), 2),
        "machine": machine_facts(policy.decoder.device),
    }
    print(f"{workload_name}: {workload.what}")
    for key in ("sample_s", "update_s", "step_s", "sampled_tokens"):
        spread = result[key]
        print(
            f"  {key:<15} median {spread['median']:.4g}  (min {spread['min']:.4g}, max {spread['max']:.4g}, n {repeats})"
        )
    print(f"  {'peak_gib':<15} {result['peak_gib']}")
    if json_path is not None:
        write_summary(json_path, result)
    return result


def _step(
    policy: Policy,
    optimizer: AdamW,
    prompts: Sequence[Sequence[int]],
    workload: Workload,
    config: TrainingConfig,
    step: int,
) -> dict[str, float]:
    stop_ids = frozenset() if workload.random_init else policy.tokenizer.stop_ids
    engine = Engine(policy.decoder, stop_ids, policy.has_token_V)
    start = time.perf_counter()
    params = SamplingParams(workload.max_new_tokens)
    completions_PG = engine.generate(prompts, workload.num_samples, params, seed_key=(0, "bench", step))
    sampled = time.perf_counter()
    rewards_PG = torch.from_numpy(np.random.default_rng(step).random((len(prompts), workload.num_samples)))
    rows = [
        TrainRow(p, prompts[p], completion.token_ids, advantage, completion.logprobs)
        for p, (group, advantages_G) in enumerate(zip(completions_PG, advantages(rewards_PG), strict=True))
        for completion, advantage in zip(group, advantages_G.tolist(), strict=True)
    ]
    num_tokens = sum(len(row.completion_ids) for row in rows)
    loss = GRPOLoss(algorithm=AlgorithmConfig(), is_on_policy=True)
    update(policy, optimizer, weigh(rows, "token", workload.max_new_tokens), loss, learning_rate=1e-6, config=config)
    if policy.decoder.device.type == "cuda":
        torch.cuda.synchronize(policy.decoder.device)
    end = time.perf_counter()
    return {"sample_s": sampled - start, "update_s": end - sampled, "step_s": end - start, "sampled_tokens": num_tokens}


def _spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}
