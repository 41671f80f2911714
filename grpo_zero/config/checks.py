"""Values that are fine alone but contradict each other, and those that may not do what was meant."""

from __future__ import annotations

import re

from grpo_zero.config.sections import LORA_TARGETS, SINKS, Config, LoraConfig, TrainingConfig
from grpo_zero.errors import UserError, nearest
from grpo_zero.presets import AlgorithmConfig
from grpo_zero.settings import show


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
