"""The numbers of a step, from what its stages returned. Names and units are those of ``observe/catalogue.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from grpo_zero.algorithms.groups import is_zero_variance
from grpo_zero.observe.memory import peak_gib
from grpo_zero.train.evaluate import Judged, flatten


def rollout_metrics(judged_PG: Sequence[Sequence[Judged]]) -> dict[str, float]:
    """Task rewards, success, lengths and group statistics over all completions of the step, unfinished ones included."""
    rows = list(flatten(judged_PG))
    rewards_PG = torch.tensor([[row.verdict.reward for row in group] for group in judged_PG], dtype=torch.float64)
    lengths = np.array([len(row.completion.token_ids) for row in rows])
    correct_PG = np.array([[row.verdict.correct for row in group] for group in judged_PG])
    correct = correct_PG.reshape(-1)
    flat_P = is_zero_variance(rewards_PG).numpy()
    metrics = {
        "reward": float(rewards_PG.mean()),
        "success": float(correct.mean()),
        "length": float(lengths.mean()),
        "truncated_share": float(np.mean([not row.completion.is_finished for row in rows])),
        "zero_variance_share": float(flat_P.mean()),
        "zero_variance_all_right_share": float((flat_P & correct_PG.all(1)).mean()),
        "zero_variance_all_wrong_share": float((flat_P & ~correct_PG.any(1)).mean()),
        "num_tokens": int(lengths.sum()),
    }
    for part in rows[0].verdict.parts:
        metrics[f"reward/{part}"] = float(np.mean([row.verdict.parts[part] for row in rows]))
    for name, chosen in (("length_right", correct), ("length_wrong", ~correct)):
        if chosen.any():
            metrics[name] = float(lengths[chosen].mean())
    return metrics


def merge_updates(facts_U: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The facts of all updates on one rollout as one.

    Losses and gradient norms are averaged over updates, means over tokens by the tokens they were taken over. ``logprob_gap``
    compares sampler and trainer, so it is the first forwarding update's: after it the policy has moved.
    """
    num_forwarded = sum(facts["forwarded_tokens"] for facts in facts_U)
    merged = {name: float(np.mean([facts[name] for facts in facts_U])) for name in ("loss", "grad_norm")}
    merged["forwarded_tokens"] = num_forwarded
    forwarding = [facts for facts in facts_U if facts["forwarded_tokens"]]
    for name in forwarding[0] if forwarding else ():
        if name == "logprob_gap":
            merged[name] = forwarding[0][name]
        elif name not in merged:
            merged[name] = sum(facts[name] * facts["forwarded_tokens"] for facts in forwarding) / num_forwarded
    return merged


def time_metrics(
    metrics: Mapping[str, float], update_s: float, step_s: float, device: torch.device
) -> dict[str, float]:
    """Seconds, speeds and memory; ``metrics`` holds sample_s, num_tokens and forwarded_tokens."""
    return {
        "update_s": update_s,
        "step_s": step_s,
        "sample_share": metrics["sample_s"] / step_s,
        "tokens_per_s_sample": metrics["num_tokens"] / metrics["sample_s"],
        "tokens_per_s_update": metrics["forwarded_tokens"] / update_s,
        "peak_gib": device_peak_gib(device),
        "peak_host_gib": peak_gib(),
    }


def device_peak_gib(device: torch.device) -> float:
    """Highest memory use so far, GiB: allocated on the GPU where there is one, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return peak_gib()
