"""GSM8K in TRL's GRPOTrainer with LoRA, judged by our strict verifier: Qwen2.5-0.5B-Instruct, for a 16 GB GPU.

uv run hf download Qwen/Qwen2.5-0.5B-Instruct --local-dir Qwen2.5-0.5B-Instruct
uv run hf download openai/gsm8k --repo-type dataset --local-dir gsm8k --include "main/*"
uv run --extra trl examples/trl_gsm8k_lora.py

The settings are those of configs/gsm8k_lora_16GB.yaml, in TRL's words.
"""

import argparse
from pathlib import Path

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from grpo_zero.bridges.trl import MetricsCallback, dataset, prepare_tokenizer, reward_functions
from grpo_zero.tasks import load_task


def main(words: list[str] | None = None) -> GRPOTrainer:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen2.5-0.5B-Instruct", help="Hugging Face folder or hub id")
    parser.add_argument("--data", default="gsm8k/main", help="folder with train and test files, or one file")
    parser.add_argument("--run", type=Path, default=Path("runs/trl_gsm8k_lora"), help="metrics.jsonl and checkpoints")
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--questions", type=int, default=16, help="a step")
    parser.add_argument("--answers", type=int, default=8, help="to each question")
    parser.add_argument("--max-length", type=int, default=384, help="tokens of an answer")
    parser.add_argument("--micro-batch", type=int, default=8, help="answers in one forward of the update")
    parser.add_argument("--held-out", type=int, default=256, help="questions to evaluate on every 50 steps")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --run")
    options = parser.parse_args(words)

    has_gpu = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16 if has_gpu else torch.float32)
    task = load_task("gsm8k", answer_rule="strict")
    rows, held_out, _ = task.load(options.data, test_size=options.held_out)
    tokenizer = prepare_tokenizer(options.model, task)
    questions = dataset(task, rows)
    settings = GRPOConfig(
        output_dir=str(options.run / "checkpoints"),
        max_steps=options.max_steps,
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=options.questions * options.answers // options.micro_batch,
        num_generations=options.answers,
        max_completion_length=options.max_length,
        temperature=1.0,
        learning_rate=2e-5,
        lr_scheduler_type="constant",
        loss_type="dapo",  # the mean over all tokens of the step, as ours; TRL's `grpo` averages answer by answer
        mask_truncated_completions=True,  # our skip_unfinished_episodes
        beta=0.0,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        logging_steps=1,
        save_steps=50,
        eval_strategy="steps",
        eval_steps=50,
        per_device_eval_batch_size=64,
        num_generations_eval=1,
        report_to="none",
    )
    trainer = GRPOTrainer(
        model,
        reward_functions(task, tokenizer, questions, generation_config=model.generation_config),
        args=settings,
        train_dataset=questions,
        eval_dataset=dataset(task, held_out),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[MetricsCallback(options.run)],
    )
    trainer.train(resume_from_checkpoint=options.resume)
    trainer.save_model(str(options.run / "adapter"))
    return trainer


if __name__ == "__main__":
    main()
