"""The policy: a decoder with the tokenizer and chat template that belong to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from grpo_zero.allocator import SMALL_BYTES, keep_freed_memory
from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.source import Source, open_source
from grpo_zero.config import ModelConfig, TrainingConfig
from grpo_zero.errors import UserError
from grpo_zero.model.decoder import Decoder
from grpo_zero.rollout.engine import Engine
from grpo_zero.text.chat import ChatTemplate, prompt_ids
from grpo_zero.text.tokenizer import Tokenizer
from grpo_zero.types import Completion, Problem


@dataclass(frozen=True, slots=True)
class Policy:
    """What is sampled from and trained."""

    decoder: Decoder
    tokenizer: Tokenizer
    template: ChatTemplate
    source: Source
    """Where it came from: config and tokenizer files for saving."""
    has_token_V: Tensor | None
    """bool ``[V]`` on the decoder's device, or None when every id has a token."""

    def prompt_ids(self, problem: Problem) -> list[int]:
        """Token ids of the problem's prompt, the start of the response included."""
        return prompt_ids(self.tokenizer, self.template, problem)

    def text(self, completion: Completion) -> str:
        """The completion's text without the stop token."""
        return self.tokenizer.decode_completion(completion.token_ids)


def load_policy(config: ModelConfig, *, init_seed: int, max_tokens: int | None = None) -> Policy:
    """Open a model and put its weights on the device.

    Args:
        config: which model, device and dtype.
        init_seed: of random weights, with ``model.random_init``.
        max_tokens: longest prompt plus completion that will be asked for; refused if the model's context is shorter.

    Raises:
        UserError: no such model, no such device, context too short, no chat template.
    """
    device = resolve_device(config.device)
    source = open_source(config.pretrained_model_path, weights=not config.random_init)
    if max_tokens is not None and max_tokens > source.spec.context:
        raise UserError(
            f"Prompt and completion may take {max_tokens} tokens together, but {config.pretrained_model_path} was made for "
            f"{source.spec.context}: lower training.max_prompt_len, training.max_gen_len or evaluation.max_gen_len."
        )
    template = ChatTemplate.select(config.chat_template, source.tokenizer)
    dtype = resolve_dtype(config.dtype, device)
    seed = init_seed if config.random_init else None
    decoder = load_decoder(source, dtype=dtype, device=device, random_init_seed=seed)
    mask = torch.from_numpy(source.tokenizer.has_token_V(source.spec.vocab_size))
    has_token_V = None if bool(mask.all()) else mask.to(device)
    source = replace(source, reader=None)  # lets go of the mapped files, which count as memory of the process
    return Policy(decoder, source.tokenizer, template, source, has_token_V)


def make_engine(policy: Policy, training: TrainingConfig) -> Engine:
    """The configured sampling engine over the policy's weights."""
    return Engine(
        policy.decoder,
        policy.tokenizer.stop_ids,
        policy.has_token_V,
        training.num_slots,
        training.decode_kernels,
        training.decode,
        training.reuse_memory,
    )


def set_reuse(training: TrainingConfig) -> None:
    """Apply ``reuse_memory: false`` to the process's allocator, which else keeps what is freed (``cli.py``)."""
    if not training.reuse_memory:
        keep_freed_memory(SMALL_BYTES)


def set_recompute(decoder: Decoder, training: TrainingConfig) -> None:
    """Apply ``recompute_activations``; ``auto`` recomputes whole blocks on a GPU, where memory is short."""
    setting = training.recompute_activations
    if setting == "auto":
        setting = "full" if decoder.device.type == "cuda" else "none"
    if isinstance(setting, bool):
        setting = "full" if setting else "none"
    decoder.recompute_activations(setting)


def resolve_device(name: str) -> torch.device:
    """``auto`` is cuda, else mps, else cpu. Raises UserError for a device this machine does not have."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, here in available.items() if here))
    kind = name.partition(":")[0]
    if not available[kind]:
        raise UserError(
            f"model.device is {name!r}, but this machine has no usable {kind} device; `uv run grpo-zero train` trains the "
            "embedded model on any machine, and model.device=cpu runs this config, slowly."
        )
    if kind == "cuda" and (torch.device(name).index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"model.device is {name!r}, but this machine has {torch.cuda.device_count()} GPUs, counted from cuda:0."
        )
    return torch.device(name)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 on cuda and float32 elsewhere (bf16 products are many times slower on most CPUs)."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]
