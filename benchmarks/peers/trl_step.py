"""One bench workload through TRL's GRPOTrainer: sample and update seconds of each step, peak memory, as JSON.

python benchmarks/peers/trl_step.py W1 --model FOLDER --micro-batch 8 --json out.json

Same prompts, token for token, as ``grpo-zero bench``; random rewards, no KL, AdamW on all weights in float32.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset

from grpo_zero.bench.workloads import WORKLOADS, problem_rows, workload_config
from grpo_zero.config import Config
from grpo_zero.observe.memory import peak_gib
from grpo_zero.text.chat import ChatTemplate
from grpo_zero.text.tokenizer import Tokenizer
from grpo_zero.train.problems import make_task

warnings.simplefilter("ignore")


class Timed(trl.GRPOTrainer):
    """TRL's trainer with a stopwatch around sampling."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        started = time.perf_counter()
        output = super()._generate_and_score_completions(inputs)
        self.sample_s.append(time.perf_counter() - started)
        self.sampled_tokens.append(int(output["completion_mask"].sum()))
        return output


class StepClock(transformers.TrainerCallback):
    """Seconds of whole steps, optimizer included."""

    def __init__(self) -> None:
        self.step_s: list[float] = []

    def on_step_begin(self, *rest: Any, **named: Any) -> None:
        self.started = time.perf_counter()

    def on_step_end(self, *rest: Any, **named: Any) -> None:
        self.step_s.append(time.perf_counter() - self.started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument(
        "--model", required=True, help="Hugging Face folder; with random weights only config and tokenizer"
    )
    parser.add_argument("--micro-batch", type=int, required=True, help="completions in one forward")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    config = workload_config(options.workload, options.model)
    training = config.training
    if config.model.random_init:
        shape = transformers.AutoConfig.from_pretrained(options.model)
        model = transformers.AutoModelForCausalLM.from_config(shape, dtype=torch.float32)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    arguments = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=training.batch_size // options.micro_batch,
        steps_per_generation=training.batch_size // options.micro_batch,
        num_generations=training.num_answers_per_question,
        max_completion_length=training.max_gen_len,
        gradient_checkpointing=options.checkpointing,
        beta=0.0,
        learning_rate=training.learning_rate,
        lr_scheduler_type="constant",
        max_steps=options.repeats + 1,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        shuffle_dataset=False,
        disable_tqdm=True,
    )
    trainer = Timed(
        model=model,
        reward_funcs=lambda completions, **columns: [random.random() for _ in completions],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": prompts(config)}),
        processing_class=transformers.AutoTokenizer.from_pretrained(options.model),
    )
    trainer.sample_s, trainer.sampled_tokens = [], []
    clock = StepClock()
    trainer.add_callback(clock)
    trainer.train()
    sample_s, step_s = trainer.sample_s[1:], clock.step_s[1:]
    result = {
        "trainer": f"TRL {trl.__version__}",
        "workload": options.workload,
        "micro_batch": options.micro_batch,
        "checkpointing": options.checkpointing,
        "sample_s": sample_s,
        "update_s": [step - sample for step, sample in zip(step_s, sample_s, strict=True)],
        "step_s": step_s,
        "sampled_tokens": trainer.sampled_tokens[1:],
        "peak_gib": round(peak_gib(), 2),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    options.json.write_text(json.dumps(result, indent=2) + "\n")


def prompts(config: Config) -> list[str]:
    """The bench's prompts as text, chat template and response start included."""
    tokenizer = Tokenizer.from_folder(config.model.pretrained_model_path)
    template = ChatTemplate.select(config.model.chat_template, tokenizer)
    task = make_task(config)
    problems = [task.problem(row) for row in problem_rows(config.training.num_questions_per_batch)]
    return [template.render(problem.messages) + problem.response_start for problem in problems]


if __name__ == "__main__":
    main()
