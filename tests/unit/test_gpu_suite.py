"""The GPU suite runs all its paths on a CPU, so that the one run on a GPU is not spent on its mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECODE = {"batch", "tokens_s", "whole_call_tokens_s", "share_of_bandwidth"}
KEYS = {
    "peaks": {"read_gb_s", "product_tflops"},
    "decode static": DECODE,
    "decode dynamic": DECODE,
    "update": {"tokens_s", "backward_s", "step_s", "share_of_flops"},
    "offload": {"moment_bits", "backward_s", "step_s", "alone_s", "hidden_share"},
}


def run_suite(*options: str) -> dict[str, object]:
    command = [sys.executable, "benchmarks/gpu_suite.py", "--device", "cpu", "--tiny", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_all_paths_run_on_a_cpu(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    document = run_suite("--json", str(path))
    assert json.loads(path.read_text()) == document
    assert {"machine", "torch", "commit", "budget_s", "seconds"} < document.keys()
    records = document["records"]
    assert not [record for record in records if "skipped" in record or "failed" in record]

    values = [record for record in records if record["part"] == "values"]
    assert len(values) == 6
    assert all(record["difference"] <= record["limit"] and record["passes"] for record in values)
    times = {record["what"]: record for record in records if record["part"] == "times"}
    assert times.keys() == KEYS.keys()
    assert all(keys <= times[what].keys() for what, keys in KEYS.items())
    first, second = (record for record in records if record["part"] == "memory")
    assert {"shape", "cap_gib", "moment_bits", "fits", "peak_gib", "sample_s", "update_s"} <= first.keys()
    assert (second["cap_gib"], second["fits"], second["implied_by_cap_gib"]) == (24, True, 16)


@pytest.mark.parametrize(
    ("command", "message"),
    [("import sys; print('{\"a\": 1}', flush=True); sys.exit('no luck')", "failed"), ("while True: pass", "skipped")],
)
def test_a_cell_that_dies_or_hangs_is_named_and_spoils_no_other(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import gpu_suite

    script = tmp_path / "cell.py"
    script.write_text(command)
    monkeypatch.setattr(gpu_suite, "__file__", str(script))
    monkeypatch.setattr(gpu_suite, "FEWEST_S", 0.0)
    found = gpu_suite.run_cell("memory 3B 16", "cpu", True, 1.0)
    assert message in found[-1]
    assert [record["cell"] for record in found] == ["memory 3B 16"] * len(found)
    assert len(found) == (2 if message == "failed" else 1)


def test_what_the_time_does_not_allow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import gpu_suite

    assert gpu_suite.run_cell("memory 7B 16", "cuda", False, 3.0) == [
        {"part": "memory", "cell": "memory 7B 16", "skipped": "no time left"}
    ]
