"""Run folders as the trainer leaves them, written from made-up numbers."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

CONFIG = """\
model: {{pretrained_model_path: "embedded:countdown-tiny"}}
data: {{task: countdown}}
algorithm: {{preset: grpo_zero}}
training: {{max_steps: {num_steps}, batch_size: {batch}, num_questions_per_batch: {questions}, eval_interval: {interval}}}
evaluation: {{samples_per_problem: {samples}}}
"""
STEP = 987654321
"""Stands for a step in a block's text."""
STEP_CHARACTERS = 123454321
"""Stands for the characters of its number."""
PROMPT = "<|im_start|>user\nMake {target} from [{numbers}].<|im_end|>\n<|im_start|>assistant\n<think>\n"


def train_metrics(step: int, num_steps: int, noise: random.Random) -> dict[str, float]:
    """What a step of a run that goes well would record."""
    done = step / max(1, num_steps)
    success = min(0.98, max(0.02, 0.3 + 0.4 * done + noise.gauss(0, 0.03)))
    sample_s, update_s = 3 + noise.random(), 8 + noise.random()
    zero = success**8 + (1 - success) ** 8
    return {
        "reward": 0.1 + success,
        "success": success,
        "length": 60 + 20 * done + noise.gauss(0, 2),
        "truncated_share": max(0.0, 0.05 + 0.1 * done + noise.gauss(0, 0.01)),
        "zero_variance_share": min(1.0, zero + 0.1 * noise.random()),
        "zero_variance_all_right_share": 0.5 * zero,
        "zero_variance_all_wrong_share": 0.4 * zero,
        "zero_variance_expected": zero,
        "num_tokens": 20000,
        "reward/format": 0.1,
        "reward/answer": success,
        "length_right": 50 + noise.gauss(0, 2),
        "length_wrong": 70 + 40 * done + noise.gauss(0, 3),
        "sample_s": sample_s,
        "loss": noise.gauss(0, 0.01),
        "grad_norm": 0.2 + 0.05 * noise.random(),
        "logprob_gap": 2e-7,
        "entropy": 0.3 - 0.1 * done + noise.gauss(0, 0.005),
        "clip_fraction_high": 0.02,
        "clip_fraction_low": 0.01,
        "kl_old": 0.002,
        "learning_rate": 1e-5,
        "prefill_s": 0.2,
        "verify_s": 0.1,
        "optimizer_s": 0.3,
        "update_s": update_s,
        "step_s": sample_s + update_s + 0.15,
        "tokens_per_s_sample": 20000 / sample_s,
        "tokens_per_s_update": 20000 / update_s,
        "peak_gib": 9.5 - 1.5 * math.exp(-step),
        "peak_host_gib": 4.0,
    }


def eval_metrics(success: float) -> dict[str, float]:
    """What an evaluation would record."""
    return {
        "eval/success": success,
        "eval/success_low": success - 0.05,
        "eval/success_high": success + 0.05,
        "eval/greedy_success": success + 0.02,
        "eval/greedy_success_low": success - 0.04,
        "eval/greedy_success_high": success + 0.08,
        "eval/truncated_share": 0.03,
        "eval/length": 62.0,
    }


def sample(
    step: int, kind: str, prompt: str, response: str, mark: str, advantage: float | None = None
) -> dict[str, Any]:
    """A row of samples.jsonl; ``mark`` is right, wrong or truncated."""
    right = mark == "right"
    return {
        "step": step,
        "kind": kind,
        "prompt": prompt,
        "response": response,
        "reward": 1.1 if right else 0.1,
        "parts": {"format": 0.1, "answer": 1.0 if right else 0.0},
        "reason": "right" if right else "gives another number",
        "advantage": advantage,
        "finish_reason": "length" if mark == "truncated" else "stop",
        "correct": right,
        "length": 40,
    }


def line(row: dict[str, Any]) -> str:
    """A row as the trainer writes it."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def start_run(folder: Path, num_steps: int, *, questions: int = 4, answers: int = 4, interval: int = 10) -> Path:
    """A run folder with its config and no record yet."""
    folder.mkdir(parents=True)
    batch = questions * answers
    text = CONFIG.format(num_steps=num_steps, batch=batch, questions=questions, interval=interval, samples=answers)
    (folder / "config.yaml").write_text(text)
    (folder / "run.json").write_text('{"command": "train"}\n')
    return folder


def write_steps(
    folder: Path,
    first: int,
    last: int,
    num_steps: int,
    *,
    questions: int = 4,
    answers: int = 4,
    interval: int = 10,
    seed: int = 0,
) -> None:
    """Append the steps ``first`` to ``last``, with their answers: step 0 is the evaluation before training."""
    noise = random.Random(seed * 1_000_003 + first)
    blocks = {kind: _block(kind, questions, answers) for kind in ("train", "eval")}

    def answers_of(step: int, kind: str) -> str:
        return blocks[kind].replace(str(STEP), str(step)).replace(str(STEP_CHARACTERS), str(len(str(step))))

    with (
        (folder / "metrics.jsonl").open("a", encoding="utf-8") as metrics,
        (folder / "samples.jsonl").open("a", encoding="utf-8") as samples,
    ):
        for step in range(first, last + 1):
            if step:
                metrics.write(line({"step": step, "kind": "train", **train_metrics(step, num_steps, noise)}))
                samples.write(answers_of(step, "train"))
            if step % interval == 0:
                success = 0.3 + (0.3 + 0.1 * (seed % 3)) * step / max(1, num_steps)
                metrics.write(line({"step": step, "kind": "eval", **eval_metrics(success)}))
                samples.write(answers_of(step, "eval"))


def tokens_of(response: str, noise: random.Random) -> dict[str, list[Any]]:
    """Made-up tokens of a response, and of the one that ends it: words, numbers and spaces, most of them likely."""
    words = re.findall(r"\d+|\s|[^\d\s]+", response)
    return {
        "token_characters": [STEP_CHARACTERS if word == str(STEP) else len(word) for word in words] + [0],
        "token_logprobs": [-round(noise.choice((0.01, 0.05, 0.3, 1, 2, 4)) * noise.random(), 3) for _ in (*words, "")],
    }


def _block(kind: str, questions: int, answers: int) -> str:
    """The first question is all right, the second all wrong, the others mixed with a truncated last answer; of step STEP."""
    prompts = [PROMPT.format(target=20 + index, numbers=f"{index + 2}, 3, 7") for index in range(questions)]
    rows, noise = [], random.Random(0)
    for index, prompt in enumerate(prompts):
        for number in range(answers):
            mark = ["right", "wrong", "right" if number % 2 else "wrong"][min(index, 2)]
            if index >= 2 and number == answers - 1:
                mark = "truncated"
            advantage = None if kind == "eval" else 0.0 if index < 2 else 1.0 if mark == "right" else -1.0
            response = "1 + 2 = 3, 3 * 7 = 21, no\n" * 3 + f"step {STEP}, answer {number}"
            rows.append(line(sample(STEP, kind, prompt, response, mark, advantage) | tokens_of(response, noise)))
    return "".join(rows)
