"""Where the records of a run are written, and what it ran on."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import torch

from grpo_zero.observe.console import Console
from grpo_zero.observe.files import MetricsFile, SamplesFile
from grpo_zero.observe.record import Kind, SampleRecord, StepRecord
from grpo_zero.observe.tensorboard import TensorBoardSink
from grpo_zero.train.evaluate import Judged, flatten
from grpo_zero.train.policy import Policy
from grpo_zero.train.resume import Start


class Recorder:
    """Every place a record goes to. Stages return facts; this is where they are written."""

    def __init__(self, folder: Path, console: Console, policy: Policy, start: Start) -> None:
        self.policy = policy
        self.console = console
        with ExitStack() as opened:  # a damaged file closes those that are open already
            self.metrics = opened.enter_context(closing(MetricsFile(folder / "metrics.jsonl", start.is_kept)))
            self.samples = opened.enter_context(closing(SamplesFile(folder / "samples.jsonl", start.is_kept)))
            opened.pop_all()
        self.tensorboard = TensorBoardSink(folder, start.step if start.is_resumed else None)

    def write(self, record: StepRecord) -> None:
        """The record's numbers, to all sinks."""
        self.metrics.write(record)
        self.tensorboard.write(record)
        self.console.write(record)

    def write_samples(
        self, step: int, kind: Kind, judged: Sequence[Sequence[Judged]], advantages_PG: np.ndarray | None = None
    ) -> None:
        """Every answer given, to samples.jsonl; an advantage that is NaN is none."""
        advantages = itertools.repeat(np.nan) if advantages_PG is None else advantages_PG.flat
        for answer, advantage in zip(flatten(judged), advantages, strict=False):
            verdict = answer.verdict
            self.samples.write(
                SampleRecord(
                    step=step,
                    kind=kind,
                    prompt=self.policy.tokenizer.decode(answer.item.prompt_ids),
                    response=answer.text,
                    reward=verdict.reward,
                    parts=verdict.parts,
                    reason=verdict.reason,
                    advantage=None if np.isnan(advantage) else float(advantage),
                    finish_reason=answer.completion.finish_reason,
                    correct=verdict.correct,
                )
            )

    def sync(self) -> None:
        """Have all records on the disk, before a checkpoint that a run may go on from after them."""
        self.metrics.sync()
        self.samples.sync()

    def close(self) -> None:
        """Flush and close all files."""
        for sink in (self.metrics, self.samples, self.tensorboard, self.console):
            sink.close()


def machine_facts(device: torch.device) -> dict[str, str | int]:
    """What the figures of a run were measured on."""
    facts: dict[str, str | int] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
        "threads": torch.get_num_threads(),
        "processor": _processor(),
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def _processor() -> str:
    """The processor's name and widest vector unit, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        return platform.processor() or "unknown"
    names = [
        line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
    ]
    return f"{names[0] if names else 'unknown'}, {torch.backends.cpu.get_cpu_capability()}"
