"""Where the records of a run are written, and what it ran on."""

from __future__ import annotations

import itertools
import math
import platform
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

import grpo_zero
from grpo_zero.config import Config
from grpo_zero.observe.console import Console
from grpo_zero.observe.files import MetricsFile, SamplesFile
from grpo_zero.observe.record import Kind, SampleRecord, StepRecord
from grpo_zero.observe.sinks import open_sinks
from grpo_zero.train.evaluate import Judged, flatten
from grpo_zero.train.policy import Policy
from grpo_zero.train.resume import Start
from grpo_zero.types import Completion

NUM_TEXTS = 4
"""Answers of each step that go to the sinks; samples.jsonl has them all."""


class Recorder:
    """Every place a record goes to. Stages return facts; this is where they are written."""

    def __init__(self, folder: Path, console: Console, policy: Policy, start: Start, config: Config) -> None:
        self.policy = policy
        self.keeps_logprobs = config.training.sample_logprobs
        self.console = console
        with ExitStack() as opened:  # a damaged file closes those that are open already
            self.metrics = opened.enter_context(closing(MetricsFile(folder / "metrics.jsonl", start.is_kept)))
            self.samples = opened.enter_context(closing(SamplesFile(folder / "samples.jsonl", start.is_kept)))
            opened.pop_all()
        keep_until_step = start.step if start.is_resumed else None
        self.sinks = open_sinks(config.training.sinks or (), folder, config.to_dict(), keep_until_step)

    def write(self, record: StepRecord) -> None:
        """The record's numbers, to all sinks."""
        self.metrics.write(record)
        for sink in self.sinks:
            sink.write(record)
        self.console.write(record)

    def write_samples(
        self, step: int, kind: Kind, judged: Sequence[Sequence[Judged]], advantages_PG: np.ndarray | None = None
    ) -> None:
        """Every answer given, to samples.jsonl; an advantage that is NaN is none."""
        advantages = itertools.repeat(np.nan) if advantages_PG is None else advantages_PG.flat
        for answer, advantage in zip(flatten(judged), advantages, strict=False):
            verdict, completion = answer.verdict, answer.completion
            characters, logprobs = self._by_token(completion) if self.keeps_logprobs else (None, None)
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
                    finish_reason=completion.finish_reason,
                    correct=verdict.correct,
                    length=len(completion.token_ids),
                    token_characters=characters,
                    token_logprobs=logprobs,
                )
            )

    def _by_token(self, completion: Completion) -> tuple[list[int], list[float]]:
        """Characters of the text and log-prob of each token."""
        ids = completion.token_ids
        characters = self.policy.tokenizer.piece_lengths(ids[:-1] if completion.is_finished else ids)
        characters += [0] * completion.is_finished
        return characters, [round(logprob, 3) + 0.0 for logprob in completion.logprobs]  # no -0.0

    def show_answers(self, step: int, judged_PG: Sequence[Sequence[Judged]]) -> None:
        """Some answers of a training step: the first ones to the sinks, a group's best and worst to the console."""
        texts = [self.policy.tokenizer.decode(row.item.prompt_ids) + row.text for row in flatten(judged_PG[:1])]
        for sink in self.sinks:
            sink.write_texts(step, texts[:NUM_TEXTS])
        group = max(judged_PG, key=lambda group: _reward(_best(group)) - _reward(_worst(group)))
        question = str(group[0].item.problem.messages[-1]["content"])
        best, worst = ((_reward(row), row.text) for row in (_best(group), _worst(group)))
        self.console.show_group(question, best, worst)

    def sync(self) -> None:
        """Have all records on the disk, before a checkpoint that a run may go on from after them."""
        self.metrics.sync()
        self.samples.sync()

    def close(self) -> None:
        """Flush and close all files."""
        for own in (self.console, self.metrics, self.samples):
            own.close()
        for sink in self.sinks:
            sink.close()


def _reward(row: Judged) -> float:
    """0 where verification failed."""
    return 0.0 if math.isnan(row.verdict.reward) else row.verdict.reward


def _best(group: Sequence[Judged]) -> Judged:
    return max(group, key=_reward)


def _worst(group: Sequence[Judged]) -> Judged:
    return min(group, key=_reward)


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


def code_facts() -> dict[str, str]:
    """The package's version, and the commit where it is a checkout (``+`` behind it when tracked files have changed since)."""
    facts = {"grpo_zero": metadata.version("grpo-zero")}
    root = Path(grpo_zero.__file__).parents[1]
    if (root / ".git").exists():
        commit, changed = _git(root, "rev-parse", "--short=8", "HEAD"), _git(root, "status", "--porcelain", "-uno")
        if commit:
            facts["commit"] = commit + ("+" if changed else "")
    return facts


def _git(root: Path, *words: str) -> str:
    """What git says; nothing where it is missing, or refuses."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    """The processor's name and widest vector unit, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        return platform.processor() or "unknown"
    names = [
        line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
    ]
    return f"{names[0] if names else 'unknown'}, {torch.backends.cpu.get_cpu_capability()}"
