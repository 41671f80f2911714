"""The verifier on real model outputs, against the labels that were published with them."""

import gzip
import json
from pathlib import Path

import pytest

from grpo_zero.tasks.countdown import CountdownTask

TASK = CountdownTask()
UNICODE_ONLY = {
    "qwen3_sft_full": {
        "test-000168": "(17 \u00d7 6) \u2212 39",
        "test-000189": "(18 + 2) \u00f7 1",
    },
}
"""The only differences: right answers in Unicode signs, refused by the strict labels (C18)."""


@pytest.mark.parametrize("name", ["qwen3_base_0_6b", "qwen3_sft_full", "qwen3_grpo"])
def test_labels_agree_but_for_unicode_operators(shared_data: Path, name: str) -> None:
    file = shared_data / "rollouts" / f"countdown_{name}.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert len(rows) == 500
    differing = {}
    for row in rows:
        verdict = TASK.verify(TASK.problem(row, check_solvable=False), row["completion"], not row["truncated"])
        if verdict.correct != row["label_correct"]:
            assert verdict.correct, (row["id"], verdict.reason)
            differing[row["id"]] = row["completion"].split("<answer>")[-1].split("</answer>")[0]
    assert differing == UNICODE_ONLY.get(name, {})
