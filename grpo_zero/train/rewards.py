"""The rewards that answers are compared by: the task's, less what the algorithm takes off."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grpo_zero.algorithms.kl import kl_estimate
from grpo_zero.algorithms.rewards import overlong_punishment
from grpo_zero.config import Config
from grpo_zero.train.evaluate import Judged


def shaped_rewards(
    judged_PG: Sequence[Sequence[Judged]],
    config: Config,
    reference_logprobs_PG: Sequence[Sequence[Sequence[float]]] | None,
) -> tuple[Tensor, dict[str, float]]:
    """Task reward, soft overlong punishment, and the KL to the starting policy where it is taken off the reward.

    Returns:
        float64 ``[P, G]``, and the means of what was added: ``penalty/overlong``, ``penalty/kl``, for the terms there are.
    """
    algorithm, max_length = config.algorithm, config.training.max_gen_len

    def tensor_PG(values: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).view(len(judged_PG), config.training.num_answers_per_question)

    rewards_PG = tensor_PG([[answer.verdict.reward for answer in group] for group in judged_PG])
    penalties: dict[str, Tensor] = {}
    if algorithm.overlong_buffer_share:
        lengths_PG = tensor_PG([[len(answer.completion.token_ids) for answer in group] for group in judged_PG])
        buffer = max(1, round(algorithm.overlong_buffer_share * max_length))
        penalties["penalty/overlong"] = overlong_punishment(lengths_PG, max_length, buffer)
    if algorithm.kl_weight and algorithm.kl_in == "reward" and reference_logprobs_PG is not None:
        kl_PG = [
            [
                _completion_kl(answer.completion.logprobs, reference, algorithm.kl_estimator)
                for answer, reference in zip(group, references, strict=True)
            ]
            for group, references in zip(judged_PG, reference_logprobs_PG, strict=True)
        ]
        penalties["penalty/kl"] = -algorithm.kl_weight * tensor_PG(kl_PG)
    for penalty_PG in penalties.values():
        rewards_PG = rewards_PG + penalty_PG
    means = {name: penalty_PG.mean().item() for name, penalty_PG in penalties.items() if penalty_PG.numel()}
    return rewards_PG, means


def _completion_kl(logprobs: Sequence[float], reference_logprobs: Sequence[float], estimator: str) -> float:
    """Sum over a completion's tokens, nats: with k1 an unbiased estimate of the KL between the distributions of completions."""
    own_T, reference_T = (torch.tensor(values, dtype=torch.float64) for values in (logprobs, reference_logprobs))
    return kl_estimate(own_T, reference_T, estimator).sum().item()
