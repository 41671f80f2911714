"""Checkpoints of a run: a Hugging Face folder that also holds the optimizer, so that a run can go on exactly.

Nothing else has to be saved: problem order, sampling and evaluation draw from streams named by (seed, purpose, step).
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from grpo_zero.checkpoint.atomic import replace_folder
from grpo_zero.checkpoint.save import save_folder
from grpo_zero.errors import UserError
from grpo_zero.train.optimizer import AdamW
from grpo_zero.train.policy import Policy

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer_state.json"


def save_model(policy: Policy, folder: Path, *, overwrite: bool = False) -> None:
    """Write the policy as a Hugging Face folder, whole or not at all."""
    save_folder(
        folder,
        dict(policy.decoder.named_parameters()),
        policy.decoder.spec,
        config=policy.source.config,
        tokenizer=policy.tokenizer,
        generation_config=policy.source.generation_config,
        overwrite=overwrite,
    )


def save_checkpoint(policy: Policy, optimizer: AdamW, step: int, folder: Path) -> Path:
    """Write ``folder/step_000123``; the name appears only when everything is on disk. Returns its path."""
    target = folder / f"step_{step:06d}"
    with replace_folder(target) as aside:
        save_model(policy, aside / "model")
        state = optimizer.state_dict()
        save_file({name: x.contiguous() for name, x in state["tensors"].items()}, aside / OPTIMIZER_FILE)
        (aside / STATE_FILE).write_text(json.dumps({"step": step, "num_steps": state["num_steps"]}) + "\n")
    return target


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint with the highest step, None when there is none."""
    found = sorted(path for path in folder.glob("step_*") if (path / STATE_FILE).is_file())
    return found[-1] if found else None


def load_optimizer(optimizer: AdamW, checkpoint: Path) -> int:
    """Fill the optimizer from a checkpoint and return its step.

    Raises:
        UserError: the file does not belong to this model.
    """
    saved = json.loads((checkpoint / STATE_FILE).read_text())
    with safe_open(checkpoint / OPTIMIZER_FILE, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    expected = optimizer.state_dict()["tensors"]
    wrong = [name for name, x in expected.items() if name not in tensors or tensors[name].shape != x.shape]
    if wrong:
        raise UserError(
            f"{checkpoint / OPTIMIZER_FILE} does not fit this run: {wrong[0]} is missing or has another shape; resume with the "
            "config and dtype the run was started with."
        )
    optimizer.load_state_dict({"num_steps": saved["num_steps"], "tensors": tensors})
    return int(saved["step"])
