"""Every option, where it is declared: a frozen dataclass a section.

Config files of the original GRPO-Zero (sections model, data, training) load as they are. No torch import, so ``--help`` is
instant. Lists are tuples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from grpo_zero.presets import AlgorithmConfig
from grpo_zero.settings import as_plain, option


@dataclass(frozen=True)
class ModelConfig:
    """Which weights, where, and in what precision."""

    pretrained_model_path: str = option(
        "Qwen2.5-3B-Instruct",
        "Model folder, Hugging Face id, .gguf file, or embedded:NAME for a packaged model.",
        may_change=True,
    )
    device: str = option(
        "auto", "Where to compute: cpu, cuda, cuda:N or mps; auto is the best there is.", may_change=True
    )
    dtype: str = option(
        "auto",
        "Weight precision; auto is bfloat16 on cuda and float32 elsewhere.",
        choices=("auto", "float32", "bfloat16"),
    )
    chat_template: str = option(
        "auto",
        "Chat template: auto is the model's own, plain is none, else the path of a Jinja file.",
    )
    random_init: bool = option(False, "Start from random weights with the sizes of the folder's config.json.")


@dataclass(frozen=True)
class DataConfig:
    """Which problems, and how they are asked."""

    task: str = option(
        "countdown",
        "The task, which asks and verifies: countdown, gsm8k, math, reasoning_gym:NAME, rewards, or a file of your own, "
        "my_task.py.",
    )
    verify_timeout_s: float | None = option(
        None,
        "Verify in processes of their own, this many seconds an answer at most; null is the task's own limit: 5 for math and "
        "reasoning_gym, else none and no such processes.",
        above=0,
        may_change=True,
    )
    verify_workers: int = option(2, "How many such processes.", minimum=1, may_change=True)
    path: str = option(
        "Countdown-Tasks-3to4",
        "Parquet or jsonl file, a folder of them (train and test), or a data set's Hugging Face id, as in openai/gsm8k; generate "
        "makes Countdown or reasoning-gym problems.",
        may_change=True,
    )
    test_size: int = option(128, "Number of problems held out for evaluation: the last of the data.", minimum=0)
    train_size: int = option(20000, "Number of training problems to make when path is generate.", minimum=1)
    numbers_per_problem: tuple[int, int] = option(
        (3, 4),
        "Smallest and largest count of numbers in a generated problem.",
        minimum=2,
        maximum=6,
    )
    number_range: tuple[int, int] = option((1, 99), "Smallest and largest number of a generated problem.", minimum=1)
    target_range: tuple[int, int] = option((10, 100), "Smallest and largest target of a generated problem.", minimum=1)
    parameters: tuple[str, ...] | None = option(
        None, "Task reasoning_gym: parameters of its data set, each as name=value; null is its own defaults."
    )
    prompt: str | None = option(
        None, "User message: Countdown with {nums} and {target}, others with {question}; null is the task's own."
    )
    system_prompt: str | None = option(None, "System message; null is the task's own, empty text is none.")
    response_start: str | None = option(
        None,
        "Text that every answer begins with, given to the model as part of the prompt; null is the task's own, for Countdown "
        "<think>.",
    )
    answer_rule: str | None = option(
        None,
        "GSM8K: which answer is paid; strict, the marked one (null means this), or lenient, else the boxed or the last number. "
        "Both are reported.",
    )
    rewards: tuple[str, ...] | None = option(
        None,
        "Task rewards: functions of yours as TRL takes them, each as my_rewards.py:function; data.path has the prompts.",
    )
    reward_weights: tuple[float, ...] | None = option(None, "Task rewards: a weight for each function; null is 1 each.")
    reward_batch: str | None = option(
        None,
        "Task rewards: what a function gets in one call; answer, one alone (null means this), or group, all answers to a "
        "question, which it may compare.",
        choices=("answer", "group"),
    )
    answer_mark: str | None = option(None, "GSM8K: what stands before the final answer; null is ####.")
    data_seed: int = option(
        1337,
        "Seed of the problem generator, apart from training.random_seed so that problems stay.",
        minimum=0,
    )


SINKS = ("tensorboard", "wandb", "trackio")
"""Where numbers can go besides metrics.jsonl."""
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""What can be adapted."""


@dataclass(frozen=True)
class LoraConfig:
    """Train thin matrices beside frozen weights (2106.09685)."""

    rank: int = option(0, "Rank of the trained matrices; 0 trains all weights instead.", minimum=0)
    alpha: float = option(32.0, "Their product is scaled by alpha / rank.", above=0)
    dropout: float = option(0.0, "Share of their inputs left out in training.", minimum=0, below=1)
    targets: tuple[str, ...] = option(LORA_TARGETS, "Which matrices of each layer, by their Hugging Face names.")
    rslora: bool = option(False, "Scale by alpha / sqrt(rank) instead (rsLoRA, 2312.03732).")
    adapter: str | None = option(None, "Folder of an adapter in PEFT's format to start from; null starts at the model.")


@dataclass(frozen=True)
class TrainingConfig:
    """The GRPO run."""

    random_seed: int = option(1337, "Seed of data order, sampling, evaluation and initialisation.", minimum=0)
    max_prompt_len: int = option(256, "Longest prompt in tokens; problems with a longer one are left out.", minimum=1)
    max_gen_len: int = option(1024, "Longest completion in tokens.", minimum=1)
    batch_size: int = option(256, "Completions a step: num_questions_per_batch times answers per question.", minimum=1)
    num_questions_per_batch: int = option(32, "Questions a step.", minimum=1)
    micro_batch_size: int | None = option(
        None,
        "Most completions in one training forward; null is no limit.",
        minimum=1,
        may_change=True,
    )
    micro_batch_tokens: int = option(
        16384,
        "Most tokens in one training forward, prompts included; a longer completion goes alone.",
        minimum=1,
        may_change=True,
    )
    max_grad_norm: float = option(1.0, "Gradients are scaled down to this norm.", above=0)
    max_skipped_steps: int | None = option(
        3,
        "Stop at this many steps in a row in which an update was skipped because its loss or gradient was not finite; null never "
        "stops. Skipped updates leave weights and moments as they were.",
        minimum=1,
        may_change=True,
    )
    learning_rate: float = option(1e-5, "Learning rate of AdamW.", minimum=0)
    weight_decay: float = option(0.0, "Weight decay of AdamW.", minimum=0)
    betas: tuple[float, float] = option((0.9, 0.999), "Decay rates of AdamW's two moments.", minimum=0, below=1)
    warmup_steps: int = option(0, "Steps in which the learning rate rises linearly from zero.", minimum=0)
    ckpt_dir: str | None = option(
        None, "Folder of the checkpoints; null is checkpoints in the run folder.", may_change=True
    )
    log_dir: str = option("runs", "Folder in which each run makes its own folder.", may_change=True)
    run_name: str | None = option(None, "Name of the run folder; null is the date and time.", may_change=True)
    skip_unfinished_episodes: bool = option(True, "Leave completions cut by max_gen_len out of the loss.")
    ckpt_save_interval: int = option(
        100, "Steps between checkpoints; 0 saves at the end only.", minimum=0, may_change=True
    )
    ckpt_keep_last: int = option(
        2,
        "The newest so many checkpoints keep their optimizer states, so that the run can go on from them.",
        minimum=1,
        may_change=True,
    )
    ckpt_keep_every: int = option(
        1,
        "Older checkpoints stay, as models alone, where their step is a multiple of this; 0 keeps none of them. The one with the "
        "best held-out success always stays.",
        minimum=0,
        may_change=True,
    )
    ckpt_on_error: str = option(
        "stop",
        "When a checkpoint cannot be written, as on a full disk: stop, or continue without it. The last good one stays.",
        choices=("stop", "continue"),
        may_change=True,
    )
    eval_interval: int = option(
        10,
        "Steps between evaluations, with one before and one after; 0 is none at all.",
        minimum=0,
        may_change=True,
    )
    memory_efficient_adamw: bool = option(
        False,
        "Keep optimizer state and gradients in host memory, for less GPU memory and slower steps.",
        may_change=True,
    )
    memory: float | str | None = option(
        None,
        "Size the run for this much memory: GiB of the device, auto for all that is free, null to plan nothing. Sets "
        "recompute_activations, memory_efficient_adamw, num_slots, micro_batch_tokens and head_chunk_tokens, as grpo-zero plan "
        "shows; config.yaml of the run keeps what was chosen.",
        may_change=True,
    )
    moment_bits: int = option(
        32,
        "Bits of each of AdamW's two moments of a weight; 8 takes a quarter of the memory and makes steps a little noisy.",
        choices=(32, 8),
    )
    recompute_activations: bool | str = option(
        "auto",
        "Compute activations again in backward instead of keeping them: none, selective (the MLP's first product), full (all "
        "but block inputs); true is full, false is none, auto is full on cuda and none elsewhere.",
        choices=("auto", "none", "selective", "full", True, False),
        may_change=True,
    )
    reuse_memory: bool = option(
        True,
        "On a CPU, keep freed memory and large gradients, which saves the time of getting them anew; false gives blocks back "
        "when they are freed, and all that is free before sampling and twice a micro-batch, for a smaller peak.",
        may_change=True,
    )
    max_steps: int | None = option(
        None, "Number of steps; null is one pass over the training problems.", minimum=1, may_change=True
    )
    max_minutes: float | None = option(
        None,
        "Stop after the step that passes this many minutes; null is no limit.",
        above=0,
        may_change=True,
    )
    temperature: float = option(1.0, "Sampling temperature of training completions.", above=0)
    updates_per_rollout: int = option(
        1, "Optimizer steps on the completions of one step; after the first of them ratios leave 1.", minimum=1
    )
    questions_per_update: int | None = option(
        None, "Questions whose completions one of these updates learns from; null is all of the step.", minimum=1
    )
    num_slots: int | None = option(
        None, "Completions sampled at once; null is as many as memory allows.", minimum=1, may_change=True
    )
    decode_kernels: str = option(
        "auto",
        "How sampling computes on a CPU: auto is C in float32, compiled once by this machine's C compiler (on Linux, without "
        "LoRA), else measured, PyTorch with the products that are fastest here; plain is PyTorch alone. They differ in rounding.",
        choices=("auto", "measured", "plain"),
        may_change=True,
    )
    decode: str = option(
        "dynamic",
        "Shapes of sampling's steps: dynamic follows what runs; static is fixed, and replayed as CUDA graphs on cuda, where it "
        "has not been run yet.",
        choices=("dynamic", "static"),
        may_change=True,
    )
    sinks: tuple[str, ...] | None = option(
        ("tensorboard",),
        "Where the numbers go besides metrics.jsonl: tensorboard, wandb (Weights & Biases), trackio; null is nowhere. The last "
        "two are packages of their own.",
        may_change=True,
    )
    report: bool = option(
        True, "Write report.html at the end: curves, findings, answers and settings on one page.", may_change=True
    )
    sample_logprobs: bool = option(
        True,
        "Keep each token's log-prob in samples.jsonl, by which the dashboard colours answers; they take more room than the text.",
        may_change=True,
    )
    head_chunk_tokens: int = option(
        256, "Tokens that go through the vocabulary head at once in training.", minimum=1, may_change=True
    )

    @property
    def num_answers_per_question(self) -> int:
        """G, the group size."""
        return self.batch_size // self.num_questions_per_batch

    @property
    def part_size(self) -> int:
        """Questions that one update learns from."""
        return self.questions_per_update or self.num_questions_per_batch

    @property
    def num_passes(self) -> int:
        """Times that a step's updates learn from each of its questions."""
        return self.updates_per_rollout * self.part_size // self.num_questions_per_batch


@dataclass(frozen=True)
class EvaluationConfig:
    """How held-out success is measured."""

    num_problems: int | None = option(
        None, "Held-out problems to evaluate on; null is all of them.", minimum=1, may_change=True
    )
    samples_per_problem: int = option(1, "Sampled answers per problem.", minimum=1, may_change=True)
    max_gen_len: int | None = option(
        None, "Longest completion in tokens; null is training.max_gen_len.", minimum=1, may_change=True
    )
    temperature: float = option(1.0, "Sampling temperature of evaluation.", above=0, may_change=True)
    top_k: int | None = option(
        None, "Sample among this many likeliest tokens; null or 0 is all.", minimum=0, may_change=True
    )
    top_p: float = option(
        1.0, "Sample among the likeliest tokens that hold this probability.", above=0, maximum=1, may_change=True
    )
    greedy: bool = option(True, "Also report the success of greedy answers.", may_change=True)


@dataclass(frozen=True)
class SftConfig:
    """Supervised training, to give a small model the form of an answer before GRPO."""

    path: str = option("generate", "Jsonl file with prompt and response, or generate for Countdown searches.")
    max_steps: int = option(800, "Number of steps.", minimum=1)
    batch_size: int = option(128, "Responses a step.", minimum=1)
    learning_rate: float = option(1e-5, "Highest learning rate, reached after warm-up.", above=0)
    warmup_steps: int = option(50, "Steps in which the learning rate rises linearly from zero.", minimum=0)
    final_learning_rate_fraction: float = option(
        0.1, "The cosine decay ends at this part of learning_rate.", minimum=0, maximum=1
    )
    tries: tuple[int, int] = option(
        (1, 4), "Smallest and largest number of random tries in a generated search.", minimum=0
    )
    give_up: float = option(
        0.35,
        "Chance that a generated search whose tries all missed gives up instead of succeeding.",
        minimum=0,
        maximum=1,
    )
    tries_skew: int = option(
        1,
        "The number of tries is the smallest of this many uniform draws: above 1, short searches are frequent.",
        minimum=1,
    )
    focus: float | None = option(
        None, "Tries are drawn with weight exp(-|result - target| / focus); null draws them uniformly.", above=0
    )
    max_value: int | None = option(
        None, "Largest result of any step in a generated search; null is no limit.", minimum=1
    )
    output: str = option("sft_model", "Folder to write the trained model to.", may_change=True)
    eval_interval: int = option(0, "Steps between evaluations; 0 is never.", minimum=0, may_change=True)
    log_interval: int = option(10, "Steps between log lines.", minimum=1, may_change=True)


@dataclass(frozen=True)
class Config:
    """The whole configuration, one attribute a section."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)

    @property
    def evaluation_gen_len(self) -> int:
        """Longest completion in evaluation and chat, tokens."""
        return self.evaluation.max_gen_len or self.training.max_gen_len

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The configuration as plain data, every key present."""
        return {f.name: as_plain(getattr(self, f.name)) for f in fields(self)}


SECTIONS: Mapping[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "training": TrainingConfig,
    "algorithm": AlgorithmConfig,
    "evaluation": EvaluationConfig,
    "sft": SftConfig,
    "lora": LoraConfig,
}
