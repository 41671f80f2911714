"""Do bf16 weights move at learning rate 1e-6? Twenty updates of the packaged model, in bf16 and in float32, on the same answers.

python benchmarks/bf16_updates.py

Three runs on the same rows: float32; bf16 with the exact float32 masters that training keeps; and bf16 alone, as a plain
optimizer would have it, where an update smaller than half a unit in the last place is lost.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from provenance import commit
from torch import Tensor

from grpo_zero.algorithms.advantages import advantages
from grpo_zero.config import Config, load_config
from grpo_zero.rollout.engine import Engine
from grpo_zero.rollout.sampler import SamplingParams
from grpo_zero.train.batch import TrainRow
from grpo_zero.train.optimizer import AdamW, join_master, make_optimizer
from grpo_zero.train.policy import load_policy
from grpo_zero.train.problems import ProblemSource, load_rows, make_task
from grpo_zero.train.recorder import machine_facts
from grpo_zero.train.rows import weigh
from grpo_zero.train.token_loss import GRPOLoss
from grpo_zero.train.update import update

RESULTS = Path(__file__).parent / "results" / "bf16_updates.json"
LEARNING_RATE = 1e-6
NUM_UPDATES = 20


def main() -> None:
    config = load_config("quickstart", ["training.num_questions_per_batch=8", "training.batch_size=64"])
    result = {
        "command": "python benchmarks/bf16_updates.py",
        "commit": commit(),
        "model": config.model.pretrained_model_path,
        "learning_rate": LEARNING_RATE,
        "updates": NUM_UPDATES,
        "completions_an_update": config.training.batch_size,
        **measure(config),
        "machine": machine_facts(torch.device("cpu")),
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {RESULTS}")


def measure(config: Config) -> dict[str, float]:
    """Shares of weights that moved, and how far the bf16 run ended from the float32 run, relative to the way that run went."""
    batches = sampled_batches(config)
    start, exact = masters_after(config, batches, "float32")
    bf16_start, kept = masters_after(config, batches, "bfloat16")
    _, lost = masters_after(config, batches, "bfloat16", keeps_masters=False)
    way, bf16_way, lost_way = exact - start, kept - bf16_start, lost - bf16_start
    return {
        "weights": start.numel(),
        "moved_share_float32": share(way != 0),
        "moved_share_bf16_masters": share(bf16_way != 0),
        "moved_share_bf16_weights": share(kept.bfloat16() != bf16_start.bfloat16()),
        "moved_share_bf16_without_masters": share(lost_way != 0),
        "cosine_to_float32": cosine(bf16_way, way),
        "cosine_to_float32_without_masters": cosine(lost_way, way),
        "length_relative_to_float32": (bf16_way.norm() / way.norm()).item(),
        "length_relative_to_float32_without_masters": (lost_way.norm() / way.norm()).item(),
    }


def sampled_batches(config: Config) -> list[list[TrainRow]]:
    """Rows of each update, sampled by the float32 model."""
    training = config.training
    policy = load_policy(config.model, init_seed=0)
    task = make_task(config)
    problems = ProblemSource(task, policy, load_rows(config, task)[0], training.max_prompt_len, "training")
    engine = Engine(policy.decoder, policy.tokenizer.stop_ids, policy.has_token_V)
    params = SamplingParams(training.max_gen_len)
    batches = []
    for step in range(1, NUM_UPDATES + 1):
        items = problems.draw(0, step, training.num_questions_per_batch)
        prompts = [item.prompt_ids for item in items]
        groups = engine.generate(prompts, training.num_answers_per_question, params, seed_key=(0, "sample", step))
        rewards_PG = torch.tensor(
            [
                [task.verify(item.problem, policy.text(c), finished=c.is_finished).reward for c in group]
                for item, group in zip(items, groups, strict=True)
            ]
        )
        rows = [
            TrainRow(p, prompts[p], c.token_ids, advantage, c.logprobs)
            for p, (group, advantages_G) in enumerate(zip(groups, advantages(rewards_PG).tolist(), strict=True))
            for c, advantage in zip(group, advantages_G, strict=True)
            if advantage
        ]
        batches.append(weigh(rows, "token", training.max_gen_len))
    return batches


def masters_after(
    config: Config, batches: list[list[TrainRow]], dtype: str, *, keeps_masters: bool = True
) -> tuple[Tensor, Tensor]:
    """All weights in float32, before and after the updates."""
    training = config.training
    model = load_config("quickstart", [f"model.dtype={dtype}"]).model
    policy = load_policy(model, init_seed=0)
    optimizer = make_optimizer(policy.decoder, training)
    start = masters(optimizer)
    loss = GRPOLoss(algorithm=config.algorithm, is_on_policy=True)
    for rows in batches:
        update(policy, optimizer, rows, loss, learning_rate=LEARNING_RATE, config=training)
        if not keeps_masters:
            for state in optimizer.states.values():
                state["rest"].zero_()
    return start, masters(optimizer)


def masters(optimizer: AdamW) -> Tensor:
    parts = []
    for name, parameter in optimizer.parameters.items():
        rest = optimizer.states[name].get("rest")
        weight = parameter.detach()
        parts.append((weight if rest is None else join_master(weight, rest)).clone().flatten())
    return torch.cat(parts)


def share(flags: Tensor) -> float:
    return flags.float().mean().item()


def cosine(first: Tensor, second: Tensor) -> float:
    return torch.nn.functional.cosine_similarity(first.double(), second.double(), dim=0).item()


if __name__ == "__main__":
    main()
