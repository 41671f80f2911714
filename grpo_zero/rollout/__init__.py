"""Sampling on the training weights: scheduler (who runs where), cache, sampler, engine, and a naive judge."""
