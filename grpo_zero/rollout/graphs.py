"""A step as a CUDA graph for each shape: hundreds of kernels started by one call. Elsewhere the step just runs.

A shape's first step runs eagerly on the side stream, which is the warm-up that capture asks for and a real step as well; the
second captures and replays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from grpo_zero.rollout.grid import Shape


@lru_cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all time: cuBLAS keeps a workspace for every stream it has met."""
    return torch.cuda.Stream(device)


class StepGraphs:
    """Runs ``step`` at the shapes asked for. The graphs share one memory pool: none leaves anything there for another."""

    def __init__(self, step: Callable[[Shape], None], device: torch.device) -> None:
        self.step, self.device = step, device
        self.warm: set[Shape] = set()
        self.graphs: dict[Shape, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def run(self, shape: Shape) -> None:
        """One step."""
        if self.pool is None:
            self.step(shape)
        elif shape in self.warm:
            if shape not in self.graphs:
                self.graphs[shape] = self._captured(shape)
            self.graphs[shape].replay()
        else:
            self._run_aside(shape)
            self.warm.add(shape)

    def release(self) -> None:
        """Drop the graphs and give their memory, and what the side stream holds, back for the update."""
        self.graphs.clear()
        if self.pool is not None:
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()

    def _run_aside(self, shape: Shape) -> None:
        stream, main = side_stream(self.device), torch.cuda.current_stream(self.device)
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            self.step(shape)
        main.wait_stream(stream)

    def _captured(self, shape: Shape) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=side_stream(self.device)):
            self.step(shape)
        return graph
