"""The numbers of a step, from what its stages returned. Names and units are those of ``observe/catalogue.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from grpo_zero.algorithms.advantages import is_zero_variance
from grpo_zero.observe.memory import peak_gib
from grpo_zero.train.evaluate import Judged, flatten


def rollout_metrics(judged_PG: Sequence[Sequence[Judged]], rewards_PG: np.ndarray) -> dict[str, float]:
    """Rewards, success, lengths and group statistics over all completions of the step, unfinished ones included."""
    rows = list(flatten(judged_PG))
    lengths = np.array([len(row.completion.token_ids) for row in rows])
    correct_PG = np.array([[row.verdict.correct for row in group] for group in judged_PG])
    correct = correct_PG.reshape(-1)
    flat_P = is_zero_variance(rewards_PG)
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


def time_metrics(times: Sequence[float], metrics: Mapping[str, float], device: torch.device) -> dict[str, float]:
    """Seconds, speeds and memory. ``times``: start, sampled, verified, updated, in seconds."""
    start, sampled, verified, updated = times
    sample_s, update_s, step_s = sampled - start, updated - verified, updated - start
    return {
        "sample_s": sample_s,
        "update_s": update_s,
        "step_s": step_s,
        "sample_share": sample_s / step_s,
        "tokens_per_s_sample": metrics["num_tokens"] / sample_s,
        "tokens_per_s_update": metrics["forwarded_tokens"] / update_s,
        "peak_gib": device_peak_gib(device),
        "peak_host_gib": peak_gib(),
    }


def device_peak_gib(device: torch.device) -> float:
    """Highest memory use so far, GiB: allocated on the GPU where there is one, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return peak_gib()
