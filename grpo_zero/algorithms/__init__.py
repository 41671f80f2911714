"""Advantages, losses and filters on tensors: pure functions. Each has a twin of the same name in ``grpo_zero/reference``."""
