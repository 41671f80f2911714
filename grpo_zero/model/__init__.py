"""The decoder: sizes, families, layers, attention. It knows nothing of the engine, the loss or the optimizer."""
