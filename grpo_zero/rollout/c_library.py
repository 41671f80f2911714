"""``decode.c`` as a library of this machine: compiled once by the C compiler that is there, kept, and loaded."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from grpo_zero.rollout.machine import cache_folder, fingerprint, instructions

SOURCE = Path(__file__).with_name("decode.c")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")
"""Not -ffast-math: sums keep their order, and NaN stays NaN."""
COMPILE_LIMIT_S = 120


@cache
def decode_library() -> ctypes.CDLL | None:
    """The library; None without Linux, a C compiler that can build it, or PyTorch's OpenMP. Asked once a process."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    openmp = _loaded_openmp()
    if platform.system() != "Linux" or compiler is None or openmp is None:
        return None
    wide = ["-mprefer-vector-width=512"] if "avx512f" in instructions() else []
    command = [*compiler.split(), *FLAGS, *wide]
    path = cache_folder() / f"decode-{fingerprint(*command, openmp, SOURCE.read_bytes())}.so"
    try:
        if not path.exists():
            _compile(command, openmp, path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None


def _compile(command: list[str], openmp: str, path: Path) -> None:
    """Aside first, then renamed: two processes may compile at once, and one may be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        aside = Path(folder) / path.name
        # Linked with PyTorch's own OpenMP: the idle threads of a second one would take the processor from the first one's.
        inputs = [str(SOURCE), "-o", str(aside), "-Wl,--as-needed", openmp, "-lm"]
        subprocess.run([*command, *inputs], check=True, capture_output=True, timeout=COMPILE_LIMIT_S)
        aside.replace(path)


def _loaded_openmp() -> str | None:
    """The file of the GNU OpenMP runtime that PyTorch has brought into this process."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(maxsplit=5)[5] for line in lines if "/libgomp" in line), None)
