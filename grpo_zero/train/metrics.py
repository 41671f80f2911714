"""The numbers of a step, from what its stages returned. Names and units are those of ``observe/catalogue.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from grpo_zero.algorithms.groups import is_zero_variance
from grpo_zero.observe.memory import peak_gib
from grpo_zero.train.evaluate import Judged, flatten, verdict_means


def rollout_metrics(judged_PG: Sequence[Sequence[Judged]]) -> dict[str, float]:
    """Task rewards, success, lengths and group statistics over all completions of the step, unfinished ones included."""
    rows = list(flatten(judged_PG))
    rewards_PG = torch.tensor([[row.verdict.reward for row in group] for group in judged_PG], dtype=torch.float64)
    lengths = np.array([len(row.completion.token_ids) for row in rows])
    correct_PG = np.array([[row.verdict.correct for row in group] for group in judged_PG])
    correct = correct_PG.reshape(-1)
    success, num_answers = float(correct.mean()), correct_PG.shape[1]
    flat_P = is_zero_variance(rewards_PG).numpy()
    metrics = {
        "reward": rewards_PG.nanmean().item(),
        "reward_std": float(np.nanstd(rewards_PG.numpy())) if not rewards_PG.isnan().all() else math.nan,
        "success": success,
        "length": float(lengths.mean()),
        "truncated_share": float(np.mean([not row.completion.is_finished for row in rows])),
        "zero_variance_share": float(flat_P.mean()),
        "zero_variance_all_right_share": float((flat_P & correct_PG.all(1)).mean()),
        "zero_variance_all_wrong_share": float((flat_P & ~correct_PG.any(1)).mean()),
        "num_finished": sum(row.completion.is_finished for row in rows),
        "zero_variance_expected": success**num_answers + (1 - success) ** num_answers,
        "num_tokens": int(lengths.sum()),
    }
    metrics |= verdict_means("", [row.verdict for row in rows])
    if any(row.verdict.failed for row in rows):
        metrics["failed_share"] = float(np.mean([row.verdict.failed for row in rows]))
    for name, chosen in (("length_right", correct), ("length_wrong", ~correct)):
        if chosen.any():
            metrics[name] = float(lengths[chosen].mean())
    return metrics


def merge_updates(facts_U: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The facts of all updates on one rollout as one; an update without a token to forward counts as none.

    Losses and gradient norms are averaged over updates, means over tokens by the tokens they were taken over. ``logprob_gap``
    compares sampler and trainer, so it is the first update's: after it the policy has moved. Skipped updates are in no mean,
    unless there are no others.
    """
    facts_U = [facts for facts in facts_U if facts["forwarded_tokens"]]
    num_skipped = sum(facts["skipped_updates"] for facts in facts_U)
    merged = {"num_updates": len(facts_U) - num_skipped, "skipped_updates": num_skipped}
    merged["forwarded_tokens"] = sum(facts["forwarded_tokens"] for facts in facts_U)
    if not facts_U:
        return merged | {"loss": 0.0, "grad_norm": 0.0}
    merged["logprob_gap"] = facts_U[0]["logprob_gap"]
    taken_U = [facts for facts in facts_U if not facts["skipped_updates"]] or facts_U
    merged |= {name: float(np.mean([facts[name] for facts in taken_U])) for name in ("loss", "grad_norm")}
    num_tokens = sum(facts["forwarded_tokens"] for facts in taken_U)
    for name in facts_U[0].keys() - merged.keys():
        merged[name] = sum(facts[name] * facts["forwarded_tokens"] for facts in taken_U) / num_tokens
    return merged


PHASE_METRICS = {"prefill": "prefill_s", "verify": "verify_s", "optimizer": "optimizer_s"}
"""Metrics of phases that are parts of others: of ``sample_s``, of none, of ``update_s``."""


def time_metrics(
    times: Sequence[float],
    phase_s: Mapping[str, float],
    metrics: Mapping[str, float],
    device: torch.device,
    *,
    has_reference: bool = False,
) -> dict[str, float]:
    """Seconds, speeds and memory.

    Args:
        times: start, rollout done, reference log-probs done, updates done; seconds.
        phase_s: of the phases named in ``PHASE_METRICS``.
        metrics: holds sample_s, num_tokens and forwarded_tokens.
    """
    start, collected, referred, updated = times
    update_s, step_s = updated - referred, updated - start
    return {
        **({"reference_s": referred - collected} if has_reference else {}),
        **{name: phase_s.get(phase, 0.0) for phase, name in PHASE_METRICS.items()},
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


def wait(device: torch.device) -> None:
    """Until a GPU has done what it was asked to, so that a clock tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
