"""What is to be planned: a model, the lengths and counts of a run, and the kind of device it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_zero.config import Config, LoraConfig
from grpo_zero.model.spec import ModelSpec
from grpo_zero.plan import adapters, sizes


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that memory depends on and a plan does not choose."""

    spec: ModelSpec
    device: str
    """``cuda``, or ``cpu`` or ``mps``, where device and host are one memory."""
    item: int
    """Bytes of a weight."""
    moment_bits: int
    max_prompt_len: int
    """Tokens."""
    max_gen_len: int
    """Longest completion to learn from, tokens."""
    max_sampled_len: int
    """Longest completion to sample, in evaluation too, tokens."""
    num_rows: int
    """Completions an update learns from."""
    num_sampled: int
    """Most completions sampled in one go; 0 is no sampling at all."""
    num_prompts: int
    """Most different prompts among them."""
    has_reference: bool
    """The policy is held to its start: a second copy of what is trained, at its starting values (``train/kl_reference.py``)."""
    lora: LoraConfig | None = None
    """None where all weights are trained."""

    @property
    def longest_row(self) -> int:
        """Stream tokens of one completion with its prompt: no micro-batch can be kept below."""
        return self.max_prompt_len + self.max_gen_len - 1

    @property
    def trained_sizes(self) -> Mapping[str, int]:
        """Weights of each parameter that has a gradient."""
        return adapters.adapter_sizes(self.spec, self.lora) if self.lora else sizes.parameter_sizes(self.spec)

    @property
    def trained_item(self) -> int:
        """Bytes of such a weight."""
        return adapters.WIDE if self.lora else self.item


def job_of(config: Config, spec: ModelSpec, device: str, command: str = "train") -> Job:
    """The job of ``grpo-zero train`` or ``grpo-zero sft``.

    Args:
        config: lengths, counts, precision; its memory settings are not looked at.
        spec: the model's.
        device: ``cuda``, ``mps`` or ``cpu``; decides what ``model.dtype: auto`` means.
        command: ``train`` or ``sft``.
    """
    training, evaluation = config.training, config.evaluation
    is_sft = command == "sft"
    evaluates = config.sft.eval_interval if is_sft else training.eval_interval
    eval_problems = (evaluation.num_problems or config.data.test_size) if evaluates else 0
    sampled = 0 if is_sft else training.batch_size
    lengths = [config.evaluation_gen_len] * bool(eval_problems) + [training.max_gen_len] * (not is_sft)
    is_half = config.model.dtype == "bfloat16" or (config.model.dtype == "auto" and device == "cuda")
    return Job(
        spec=spec,
        device=device,
        item=2 if is_half else 4,
        moment_bits=training.moment_bits,
        max_prompt_len=training.max_prompt_len,
        max_gen_len=training.max_gen_len,
        max_sampled_len=max(lengths, default=0),
        num_rows=config.sft.batch_size if is_sft else training.batch_size,
        num_sampled=max(sampled, eval_problems * evaluation.samples_per_problem),
        num_prompts=max(0 if is_sft else training.num_questions_per_batch, eval_problems),
        has_reference=not is_sft and bool(config.algorithm.kl_weight),
        lora=config.lora if config.lora.rank else None,
    )
