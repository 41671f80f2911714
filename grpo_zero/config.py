"""The configuration: a frozen dataclass a section, loaded from YAML plus overrides, checked first.

Config files of the original GRPO-Zero (sections model, data, training) load as they are.
No torch import, so ``--help`` is instant. Lists arrive as tuples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from grpo_zero.errors import UserError, nearest
from grpo_zero.presets import AlgorithmConfig, with_preset
from grpo_zero.settings import (
    as_plain,
    build_section,
    describe_section,
    field_names,
    option,
    parse_yaml,
    read_yaml,
    show,
    takes_text,
    unknown_key_message,
    unknown_section_message,
)


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
        "Matrix products of sampling on a CPU: auto takes the kernels measured fastest on this machine, plain always the same "
        "one. They differ in rounding.",
        choices=("auto", "plain"),
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
        "Keep each token's log-prob in samples.jsonl, by which the dashboard colours answers; the file is about twice as long.",
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


PRESET = ("algorithm", "preset")
"""The key that ``algorithm: dapo`` is short for."""


def load_config(path: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """The checked configuration: defaults, then the file, then ``section.key=value`` overrides.

    Args:
        path: a YAML file or the name of a packaged config; None for the defaults.
        overrides: values are YAML, except that a text field takes its text as it is.

    Raises:
        UserError: for anything a user got wrong, before anything else is loaded.
    """
    values = _read_sections(resolve_config_path(path)) if path is not None else {}
    parsed = [_parse_override(override) for override in overrides]
    for section, key, value in parsed:
        if (section, key) == PRESET:
            values[section] = {key: value}  # another preset means its parts, not those of the one before
    for section, key, value in parsed:
        values.setdefault(section, {})[key] = value
    return config_from_dict(values)


def config_from_dict(values: Mapping[str, Mapping[str, Any]], source: str = "") -> Config:
    """The checked configuration with ``values`` over the defaults; ``UserError`` as above."""
    values = {name: _spelled_out(name, keys) for name, keys in values.items()}
    _refuse_unknown(values, source)
    if "algorithm" in values:
        build_section(
            AlgorithmConfig, "algorithm", values["algorithm"]
        )  # judges what was given, before a preset joins it
        values["algorithm"] = with_preset(values["algorithm"])
    built: dict[str, Any] = {name: build_section(SECTIONS[name], name, keys) for name, keys in values.items()}
    config = Config(**built)
    check_config(config)
    return config


def dump_yaml(config: Config) -> str:
    """YAML text that loads as an equal configuration."""
    return yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)


def describe_options() -> str:
    """Every option, for ``--help``: ``section.key (type, default): sentence``."""
    blocks = ["\n".join(describe_section(name, cls)) for name, cls in SECTIONS.items()]
    return "\n\n".join(blocks)


def resolve_config_path(name: str) -> Path:
    """The file ``name`` if there is one, else the packaged config of that name."""
    path = Path(name)
    if path.is_file():
        return path
    packaged = packaged_configs()
    known = packaged.get(name.removesuffix(".yaml"))
    if known is not None:
        return known
    names = ", ".join(packaged) or "none"
    raise UserError(
        f"There is no config file {name!r} in {Path.cwd()}, nor a packaged config of that name "
        f"(packaged: {names}).{nearest(name, packaged)}"
    )


def packaged_configs() -> dict[str, Path]:
    """The YAML files that come with the package, by name."""
    folder = Path(str(resources.files("grpo_zero"))) / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def check_config(config: Config) -> None:
    """Raises ``UserError`` for values that are fine alone but contradict each other."""
    data, training, evaluation = config.data, config.training, config.evaluation
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", config.model.device):
        raise UserError(
            f"model.device is {show(config.model.device)}, but it must be auto, cpu, cuda, cuda:N "
            "(as in cuda:0) or mps."
        )
    _check_run_name(training.run_name)
    if config.model.random_init and config.model.pretrained_model_path.endswith(".gguf"):
        raise UserError(
            "model.random_init is true, but it reads the sizes from a folder's config.json and "
            f"model.pretrained_model_path is {show(config.model.pretrained_model_path)}: give a "
            "folder, or set model.random_init to false."
        )
    _check_memory(training)
    _check_sinks(training)
    _check_lora(config.lora)
    _check_groups(training)
    _check_updates(training)
    _check_algorithm(config.algorithm)
    for key, (low, high) in {
        "data.numbers_per_problem": data.numbers_per_problem,
        "data.number_range": data.number_range,
        "data.target_range": data.target_range,
        "sft.tries": config.sft.tries,
    }.items():
        if low > high:
            raise UserError(f"{key} is [{low}, {high}], but the smallest comes first: write [{high}, {low}].")
    if data.path == "generate" and data.train_size < training.num_questions_per_batch:
        raise UserError(
            f"data.train_size is {data.train_size}, but a step draws "
            f"training.num_questions_per_batch = {training.num_questions_per_batch} different "
            "problems: make at least that many."
        )
    if training.eval_interval and data.test_size == 0:
        raise UserError(
            f"data.test_size is 0, so there is nothing to evaluate on every "
            f"{training.eval_interval} steps: hold problems out, or set training.eval_interval "
            "to 0."
        )
    if evaluation.num_problems is not None and evaluation.num_problems > data.test_size:
        raise UserError(
            f"evaluation.num_problems is {evaluation.num_problems}, but data.test_size holds out "
            f"only {data.test_size} problems: lower the first or raise the second."
        )


MAX_NAME_BYTES = 200
"""Of a run's name in UTF-8; file systems take 255, and a checkpoint being replaced has a longer name for a moment."""


def _check_run_name(name: str | None) -> None:
    """A run's folder lies in log_dir, and its checkpoints may lie in ckpt_dir: neither may lead out of there."""
    if name is None:
        return
    is_plain = name.isprintable() and name == name.strip() and not set(name) & {"/", "\\", ":"}
    if name in ("", ".", "..") or not is_plain or len(name.encode()) > MAX_NAME_BYTES:
        raise UserError(
            f"training.run_name is {show(name)}, but it must name a folder within training.log_dir: printable characters, at "
            f"most {MAX_NAME_BYTES} bytes, without / \\ and :, or null for the date and time."
        )


def _check_lora(lora: LoraConfig) -> None:
    for target in lora.targets:
        if target not in LORA_TARGETS:
            tables = target in ("lm_head", "embed_tokens")
            why = " (the vocabulary's tables may be one and the same, and stay frozen)" if tables else ""
            raise UserError(
                f"lora.targets has {show(target)}, but it can have {', '.join(LORA_TARGETS)}{why}.{nearest(target, LORA_TARGETS)}"
            )
    if lora.adapter is not None and not lora.rank:
        raise UserError(
            "lora.adapter is given, but lora.rank is 0, so there is nothing to load it into: set lora.rank to its rank."
        )


def _check_memory(training: TrainingConfig) -> None:
    memory = training.memory
    if memory not in (None, "auto") and (isinstance(memory, str) or memory <= 0):
        raise UserError(
            f"training.memory is {show(memory)}, but it must be a number of GiB above 0, auto for all free memory, or null."
        )


def _check_sinks(training: TrainingConfig) -> None:
    for sink in training.sinks or ():
        if sink not in SINKS:
            raise UserError(
                f"training.sinks has {show(sink)}, but it can have {', '.join(SINKS)}; metrics.jsonl is always written."
                f"{nearest(sink, SINKS)}"
            )


MAX_ADVISED = 100_000
"""Divisors are tried up to here: a slip such as 10^15 has to be refused before tomorrow."""


def _check_groups(training: TrainingConfig) -> None:
    batch, questions = training.batch_size, training.num_questions_per_batch
    given = f"training.batch_size is {batch} and training.num_questions_per_batch is {questions}"
    if batch % questions:
        # At least two answers each, else the advice would be refused in turn.
        fewer = max(2, batch // questions)
        sizes = [f"{n * questions} ({n} answers each)" for n in (fewer, fewer + 1)]
        divisors = [n for n in range(1, min(batch // 2, MAX_ADVISED) + 1) if batch % n == 0]
        advice = f"use a batch_size of {' or '.join(sizes)}"
        if divisors:
            nearby = sorted(divisors, key=lambda n: abs(n - questions))[:2]
            choices = " or ".join(f"{n}" for n in sorted(nearby))
            advice += f", or a num_questions_per_batch of {choices}"
        raise UserError(
            f"{given}, and {batch} / {questions} = {batch / questions:.2f} is not a whole number "
            f"of answers per question: {advice}."
        )
    if batch // questions < 2:
        raise UserError(
            f"{given}, which is one answer per question: GRPO compares the answers to one "
            "question, and a lone answer has advantage zero, so nothing would be learned. Use a "
            f"batch_size of {2 * questions} or more."
        )


def _check_updates(training: TrainingConfig) -> None:
    questions, updates = training.num_questions_per_batch, training.updates_per_rollout
    part = training.part_size
    if questions % part:
        divisors = ", ".join(str(n) for n in range(1, min(questions, MAX_ADVISED) + 1) if questions % n == 0)
        raise UserError(
            f"training.questions_per_update is {part}, but the {questions} questions of a step "
            f"(training.num_questions_per_batch) do not split into parts of that size: use one of {divisors}."
        )
    if updates % (questions // part):
        parts = questions // part
        raise UserError(
            f"training.updates_per_rollout is {updates} and training.questions_per_update is {part}, but it takes {parts} "
            f"updates to learn from all {questions} questions of a step once: use {parts} or a multiple of it."
        )


def _check_algorithm(algorithm: AlgorithmConfig) -> None:
    if algorithm.dual_clip is not None and algorithm.objective != "clipped":
        raise UserError(
            f"algorithm.dual_clip is {algorithm.dual_clip}, but algorithm.objective is {algorithm.objective}, which has no such "
            "bound: set algorithm.objective to clipped or algorithm.dual_clip to null."
        )
    if algorithm.kl_weight and algorithm.kl_in == "reward" and algorithm.scale == "group_std":
        raise UserError(
            "algorithm.kl_in is reward and algorithm.scale is group_std, but where all answers of a group are equally good, "
            "their KL alone would be scaled up to full advantages: use the scale none, whiten or batch_std, or kl_in loss."
        )
    if algorithm.ratio_level == "sequence" and algorithm.objective == "policy_gradient":
        raise UserError(
            "algorithm.ratio_level is sequence, but algorithm.objective is policy_gradient, which has no ratio: use the "
            "objective clipped or cispo, or the ratio_level token."
        )


def config_notes(config: Config) -> list[str]:
    """Sentences about settings that work but may not do what was meant."""
    training, algorithm = config.training, config.algorithm
    notes = []
    if algorithm.overlong_buffer_share and training.skip_unfinished_episodes:
        notes.append(
            "answers cut by max_gen_len get the full overlong punishment but are left out of the loss: to train on it, set "
            "training.skip_unfinished_episodes=false"
        )
    if algorithm.objective == "policy_gradient" and training.updates_per_rollout > 1:
        notes.append(
            f"algorithm.objective=policy_gradient has no ratio, so only the first of the {training.updates_per_rollout} updates "
            "on a rollout is on policy"
        )
    if algorithm.has_kl_loss and algorithm.kl_estimator == "k1":
        notes.append("algorithm.kl_estimator=k1 in the loss has expected gradient 0: k2 and k3 hold the policy back")
    return notes


def _refuse_unknown(values: Mapping[str, Any], source: str) -> None:
    for section, keys in values.items():
        if section not in SECTIONS:
            raise UserError(unknown_section_message(_key_text(section), SECTIONS, source))
        if not isinstance(keys, Mapping):
            raise UserError(f"{section} is {show(keys)}, but it must be a section: keys with values, indented.")
        for key in keys:
            if key not in field_names(SECTIONS[section]):
                raise UserError(unknown_key_message(section, _key_text(key), SECTIONS, source))


def _key_text(key: Any) -> str:
    """A key of a YAML file, which need not be text, in a message."""
    return key if isinstance(key, str) else show(key)


def _spelled_out(section: str, keys: Any) -> Any:
    """``algorithm: dapo`` as ``algorithm: {preset: dapo}``; everything else as it is."""
    return {PRESET[1]: keys} if section == PRESET[0] and isinstance(keys, str) else keys


def _parse_override(override: str) -> tuple[str, str, Any]:
    name, equals, text = override.partition("=")
    section, dot, key = name.strip().partition(".")
    if equals and (section, dot) == (PRESET[0], ""):
        section, dot, key = PRESET[0], ".", PRESET[1]
    if not equals or (section in SECTIONS and not dot):
        raise UserError(f"{override[:200]!r} is no setting; write section.key=value, as in training.max_steps=50.")
    if not dot or section not in SECTIONS:
        raise UserError(unknown_section_message(section, SECTIONS))
    if key not in field_names(SECTIONS[section]):
        raise UserError(unknown_key_message(section, key, SECTIONS))
    # `data.prompt=Use {nums}: ...` and `training.run_name=7` are meant as text.
    if takes_text(SECTIONS[section], key) and text != "null" and text[:1] not in ("'", '"'):
        return section, key, text
    return section, key, parse_yaml(text, f"the value of {override[:200]!r}")


def _read_sections(path: Path) -> dict[str, dict[str, Any]]:
    """The file's sections; an empty file or section is an empty mapping."""
    loaded = read_yaml(path)
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UserError(f"{path} holds {show(loaded)}, but a config file holds sections: {', '.join(SECTIONS)}.")
    values = {name: {} if keys is None else _spelled_out(name, keys) for name, keys in loaded.items()}
    _refuse_unknown(values, str(path))
    return values
