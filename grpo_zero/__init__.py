"""GRPO-Zero: a from-scratch GRPO trainer in PyTorch."""
