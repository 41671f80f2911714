"""LoRA in a run: adapters beside a policy's weights, new, given, or of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from grpo_zero.checkpoint.adapter import load_adapter
from grpo_zero.config import Config
from grpo_zero.model.lora import add_adapters
from grpo_zero.runs import ADAPTER_FOLDER
from grpo_zero.train.policy import Policy


def adapt(policy: Policy, config: Config, checkpoint: Path | None = None) -> None:
    """Put adapters beside the weights as the section ``lora`` says; with rank 0 nothing is done.

    Args:
        checkpoint: of the run that goes on; None starts with ``lora.adapter``, or anew.

    Raises:
        UserError: an adapter that does not fit.
    """
    lora = config.lora
    if not lora.rank:
        return
    add_adapters(
        policy.decoder,
        rank=lora.rank,
        alpha=lora.alpha,
        targets=frozenset(lora.targets),
        dropout=lora.dropout,
        rslora=lora.rslora,
        seed=config.training.random_seed,
    )
    start = Path(lora.adapter) if lora.adapter else None
    folder = checkpoint / ADAPTER_FOLDER if checkpoint else start
    if folder is not None:
        load_adapter(policy.decoder, lora, folder)
