"""Advantages and losses: pure functions on tensors."""
