"""Learning rates by step; steps count from 1."""

from __future__ import annotations

import math

from grpo_zero.config import SftConfig, TrainingConfig


def grpo_learning_rate(step: int, training: TrainingConfig) -> float:
    """Linear warm-up over ``warmup_steps``, then constant."""
    return training.learning_rate * min(1.0, step / max(1, training.warmup_steps))


def sft_learning_rate(step: int, sft: SftConfig) -> float:
    """Linear warm-up, then a half cosine down to ``final_learning_rate_fraction`` at the last step."""
    if step <= sft.warmup_steps:
        return sft.learning_rate * step / sft.warmup_steps
    progress = (step - sft.warmup_steps) / max(1, sft.max_steps - sft.warmup_steps)
    floor = sft.final_learning_rate_fraction
    return sft.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))
