"""The processor at hand, and the folder that keeps what was measured or compiled for it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch


def cache_folder() -> Path:
    """``~/.cache/grpo-zero``, or where ``XDG_CACHE_HOME`` says. It may not exist yet."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "grpo-zero"


def processor() -> str:
    """The processor's model and what it can execute; PyTorch's idea of it where the system does not tell."""
    names = _cpuinfo("model name")
    return " / ".join([*sorted(names), torch.backends.cpu.get_cpu_capability()])


def instructions() -> set[str]:
    """Names of the instruction sets, as Linux writes them; empty where it does not."""
    return {word for line in _cpuinfo("flags") | _cpuinfo("Features") for word in line.split()}


def fingerprint(*parts: str | bytes) -> str:
    """16 hex digits that name this processor together with ``parts``."""
    everything = [processor(), " ".join(sorted(instructions())), *parts]
    digest = hashlib.sha256()
    for part in everything:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def _cpuinfo(key: str) -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {line.partition(":")[2].strip() for line in lines if line.startswith(key)}
