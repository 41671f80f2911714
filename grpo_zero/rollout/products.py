"""Which kernel multiplies while sampling: measured once a machine, then looked up.

At the row counts of decoding the usual product (MKL's, behind ``F.linear``) can be slower than others: oneDNN's, and the product
with the weight first, ``(W x^T)^T``. Which one wins depends on the processor, the shape and the number of rows, so each
is timed once on the model's own weights. The choice is kept in a file, so that a run goes on with the same ones.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from grpo_zero.model.decoder import Decoder
from grpo_zero.model.layers import Linear
from grpo_zero.rollout.machine import cache_folder, processor

Kernel = Callable[[Tensor, Tensor, Tensor | None], Tensor]

MOST_ROWS = 64
"""Above, all kernels reach the same speed."""
FEWEST_BYTES = 64 * 2**20
"""A smaller model's weights stay in the processor's cache, and nothing is gained."""
MEASURED_BYTES = 256 * 2**20
"""Weights of one shape to measure on: more than caches hold, so that they come from memory, as in decoding."""
NUM_ROUNDS = 3


def onednn(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """oneDNN's product."""
    return torch.ops.mkldnn._linear_pointwise(x_TI, weight_OI, bias_O, "none", [], "")


def weight_first(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """``(W x^T)^T``, laid out by rows."""
    out_OT = weight_OI @ x_TI.T
    return (out_OT if bias_O is None else out_OT + bias_O[:, None]).T.contiguous()


KERNELS: dict[str, Kernel] = {"linear": F.linear, "onednn": onednn, "weight_first": weight_first}


@contextmanager
def decode_products(decoder: Decoder, num_rows: int, choices_path: Path | None = None) -> Iterator[None]:
    """Within, the decoder multiplies by the kernels chosen for each shape and row count up to ``num_rows``.

    Only on a CPU, in float32, and for models whose weights do not fit its cache; elsewhere nothing is changed.
    ``choices_path``: where choices are kept; None is ``~/.cache/grpo-zero/products.json``.
    """
    weight_bytes = decoder.spec.num_parameters * 4
    is_worth_it = decoder.device.type == "cpu" and decoder.embedding.weight.dtype == torch.float32
    if not is_worth_it or weight_bytes < FEWEST_BYTES or not torch.backends.mkldnn.is_available():
        yield
        return
    linears = [module for module in decoder.modules() if isinstance(module, Linear) and module is not decoder.head]
    weights: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
    for weight_OI in (*(linear.weight for linear in linears), decoder.head_weight_VE):
        weights[weight_OI.shape[0], weight_OI.shape[1]].append(weight_OI.detach())
    choices = _Choices(choices_path or cache_folder() / "products.json", weights)
    for rows in _buckets(num_rows):
        choices.complete(rows)
    for linear in linears:
        linear.product = partial(choices.product, weight_OI=linear.weight, bias_O=linear.bias)
    decoder.head_product = partial(choices.product, weight_OI=decoder.head_weight_VE, bias_O=None)
    try:
        yield
    finally:
        for linear in linears:
            linear.product = None
        decoder.head_product = None


class _Choices:
    """The fastest kernel by shape and row bucket: of the file, else measured and added to it."""

    def __init__(self, path: Path, weights: dict[tuple[int, int], list[Tensor]]) -> None:
        self.path, self.weights = path, weights
        self.machine = f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
        self.known: dict[str, str] = _read(path).get(self.machine, {})

    def complete(self, rows: int) -> None:
        """Measure the shapes whose kernel for this many rows is not known."""
        fresh = {shape: ws for shape, ws in self.weights.items() if self.known.get(_name(shape, rows)) not in KERNELS}
        if fresh:
            self.known |= {_name(shape, rows): fastest(weights, rows) for shape, weights in fresh.items()}
            _write(self.path, self.machine, self.known)

    def product(self, x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        rows = len(x_TI)
        if rows > MOST_ROWS:
            return F.linear(x_TI, weight_OI, bias_O)
        shape = (weight_OI.shape[0], weight_OI.shape[1])
        return KERNELS[self.known.get(_name(shape, _bucket(rows)), "linear")](x_TI, weight_OI, bias_O)


def fastest(weights: Sequence[Tensor], rows: int) -> str:
    """The kernel with the least time over ``weights`` of one shape; best of a few rounds."""
    weights = weights[: -(-MEASURED_BYTES // weights[0].nbytes)]
    x_TI = torch.randn(rows, weights[0].shape[1], generator=torch.Generator().manual_seed(0))
    best = dict.fromkeys(KERNELS, float("inf"))
    for _ in range(NUM_ROUNDS):
        for name, kernel in KERNELS.items():
            started = time.perf_counter()
            for weight_OI in weights:
                kernel(x_TI, weight_OI, None)
            best[name] = min(best[name], time.perf_counter() - started)
    return min(best, key=lambda name: best[name])


def _bucket(rows: int) -> int:
    """The power of two at or above."""
    return 1 << (rows - 1).bit_length()


def _buckets(num_rows: int) -> list[int]:
    return [1 << power for power in range(_bucket(min(num_rows, MOST_ROWS)).bit_length())]


def _name(shape: tuple[int, int], rows: int) -> str:
    return f"{shape[0]}x{shape[1]} @ {rows}"


def _read(path: Path) -> dict[str, dict[str, str]]:
    """What the file holds; nothing where there is none or it is damaged."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_sound = isinstance(loaded, dict) and all(isinstance(choices, dict) for choices in loaded.values())
    return loaded if is_sound else {}


def _write(path: Path, machine: str, known: dict[str, str]) -> None:
    """Add to the file, whole or not at all; a folder that cannot be written to costs a measurement next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        aside.write_text(json.dumps(_read(path) | {machine: known}, indent=1), encoding="utf-8")
        aside.replace(path)
    except OSError:
        pass
