"""Checkpoints of a run: the model as a Hugging Face folder, and the optimizer, so that a run can go on exactly.

Nothing else has to be saved: problem order, sampling and evaluation draw from streams named by (seed, purpose, step).
Safetensors and JSON alone: nothing that is loaded can run code.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from grpo_zero.checkpoint.adapter import save_adapter
from grpo_zero.checkpoint.atomic import remove_folder, replace_folder
from grpo_zero.checkpoint.checksums import write_checksums
from grpo_zero.checkpoint.save import save_folder
from grpo_zero.config import LoraConfig
from grpo_zero.errors import UserError
from grpo_zero.model.lora import MergedState
from grpo_zero.runs import ADAPTER_FOLDER, MODEL_FOLDER, OPTIMIZER_FILE, STATE_FILE, checkpoints, read_state
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy


def save_model(policy: Policy, folder: Path, *, overwrite: bool = False) -> None:
    """Write the policy as a Hugging Face folder, whole or not at all."""
    save_folder(
        folder,
        MergedState(policy.decoder),
        policy.decoder.spec,
        config=policy.source.config,
        tokenizer=policy.tokenizer,
        generation_config=policy.source.generation_config,
        overwrite=overwrite,
    )


def save_checkpoint(
    policy: Policy,
    optimizer: AdamW,
    step: int,
    folder: Path,
    lora: LoraConfig | None = None,
    *,
    keep_last: int = 2,
    keep_every: int = 1,
    success: float | None = None,
    is_evaluated: bool = True,
) -> Path:
    """Write ``folder/step_000123``; the name appears only when everything is on disk. Returns its path.

    With adapters the model is written with them merged in, and they are written apart in PEFT's format too. Earlier checkpoints
    are then thinned out (``thin_out``).

    Args:
        success: held-out success of these weights, where it was measured.
        is_evaluated: whether the evaluation due after this step, if any, is done.
        keep_last, keep_every: of ``thin_out``.
    """
    target = folder / f"step_{step:06d}"
    with replace_folder(target) as aside:
        save_model(policy, aside / MODEL_FOLDER)
        if lora is not None and lora.rank:
            save_adapter(policy.decoder, lora, policy.source.origin, aside / ADAPTER_FOLDER)
        tensors = {name: x.contiguous() for name, x in optimizer.tensors().items()}
        save_file(tensors, aside / OPTIMIZER_FILE)
        state = {
            "step": step,
            "num_steps": optimizer.num_steps,
            "moment_bits": optimizer.moment_bits,
            "success": success,
            "is_evaluated": is_evaluated,
            "has_checksums": True,
        }
        (aside / STATE_FILE).write_text(json.dumps(state) + "\n")
        write_checksums(aside)
    thin_out([path for path in checkpoints(folder) if path.name <= target.name], keep_last, keep_every)
    return target


def thin_out(paths: Sequence[Path], keep_last: int, keep_every: int) -> None:
    """Of checkpoints, oldest first: the last ``keep_last`` stay whole. Of the older ones those at a multiple of ``keep_every``
    steps (0: none) and the one of the best success stay as models, without the optimizer, which takes 8 bytes a weight (2 with
    8-bit moments, and 2 more with bf16 weights); the others go. What cannot be read is left alone."""
    older = paths[:-keep_last]
    states = _readable_states(paths)
    scores = {path: state["success"] for path, state in states.items() if state.get("success") is not None}
    best = max(scores, key=lambda path: (scores[path], path), default=None)
    for path in (path for path in older if path in states):
        if path == best or (keep_every and states[path]["step"] % keep_every == 0):
            (path / OPTIMIZER_FILE).unlink(missing_ok=True)
        else:
            remove_folder(path)


def load_optimizer(optimizer: AdamW, checkpoint: Path) -> int:
    """Fill the optimizer from a checkpoint, tensor by tensor, and return its step.

    Raises:
        UserError: the file does not belong to this model, or is damaged.
    """
    saved = read_state(checkpoint)
    bits = saved.get("moment_bits", 32)  # checkpoints from before there was a choice do not say
    if bits != optimizer.moment_bits:
        raise UserError(
            f"training.moment_bits is {optimizer.moment_bits}, but {checkpoint} holds moments of {bits} bits: resume with "
            f"training.moment_bits={bits}."
        )
    path = checkpoint / OPTIMIZER_FILE
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for name, tensor in optimizer.tensors().items():
                if name not in names or tuple(file.get_slice(name).get_shape()) != tuple(tensor.shape):
                    raise UserError(
                        f"{path} does not fit this run: {name} is missing or has another shape; resume with the config and dtype "
                        "the run was started with."
                    )
                tensor.copy_(file.get_tensor(name))
    except SafetensorError as error:
        raise UserError(f"{path} cannot be read ({error}): restore it from a copy.") from error
    optimizer.num_steps = saved["num_steps"]
    return int(saved["step"])


def _readable_states(paths: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    states = {}
    for path in paths:
        with contextlib.suppress(UserError):
            states[path] = read_state(path)
    return states
