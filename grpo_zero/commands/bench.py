"""``grpo-zero bench``: the time and memory of one GRPO step on a fixed workload, with random rewards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo_zero.bench.floors import measure_peaks
from grpo_zero.bench.report import comparison, result_of, table
from grpo_zero.bench.step import Bench
from grpo_zero.bench.workloads import WORKLOADS, workload_config
from grpo_zero.errors import UserError
from grpo_zero.observe.files import finite, write_summary
from grpo_zero.train.metrics import device_peak_gib
from grpo_zero.train.recorder import machine_facts


def bench(
    name: str,
    model: str | None,
    repeats: int,
    overrides: Sequence[str] = (),
    json_path: Path | None = None,
    compare_path: Path | None = None,
) -> dict[str, Any]:
    """Time ``repeats`` steps after one warm-up step and print them; the last line is one JSON document.

    Args:
        name, model, overrides: of ``workload_config``.
        json_path: also write the document here.
        compare_path: an earlier document to compare with.

    Raises:
        UserError: unknown workload, its model is not given, or ``compare_path`` holds no such document.
    """
    config = workload_config(name, model, overrides)
    earlier = _earlier(compare_path) if compare_path else None
    bench = Bench(config)
    decoder, device = bench.policy.decoder, bench.device
    dtype = decoder.embedding.weight.dtype
    peaks = measure_peaks(device, dtype)
    bench.step(0)
    steps = [bench.step(step) for step in range(1, repeats + 1)]
    tops = [max(step.peak_bytes.values(), default=0) / 2**30 for step in steps]
    result = {
        "workload": name,
        "what": WORKLOADS[name].what,
        "settings": [*WORKLOADS[name].settings, *overrides],
        "prompt_tokens": [len(item.prompt_ids) for item in bench.items],
        "weights": decoder.spec.num_parameters,
        "dtype": str(dtype).removeprefix("torch."),
        "decoding": "compiled C" if bench.engine.is_compiled else f"PyTorch, {bench.engine.kernels} products",
        "repeats": repeats,
        **result_of(steps, decoder.spec, config, peaks, dtype.itemsize),
        "peak_gib": round(max(tops) or device_peak_gib(device), 2),
        "planned_gib": round(bench.planned_bytes() / 2**30, 2),
        "machine": machine_facts(device),
    }
    print(f"{name}: {WORKLOADS[name].what}{'; ' if overrides else ''}{' '.join(overrides)}")
    print(table(result))
    if earlier is not None:
        print(comparison(result, earlier, str(compare_path)))
    print(json.dumps(finite(result), allow_nan=False))
    if json_path is not None:
        write_summary(json_path, result)
    return result


def _earlier(path: Path) -> dict[str, Any]:
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if {"workload", "step_s", "sample_s", "update_s", "peak_gib"} <= earlier.keys():
            return earlier
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"--compare is {path}, which cannot be read ({error}): give a file that --json wrote."
        ) from error
    raise UserError(f"--compare is {path}, which is no result of the bench: give a file that --json wrote.")
