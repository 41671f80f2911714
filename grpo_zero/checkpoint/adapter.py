"""Adapters in PEFT's format: ``adapter_config.json`` and ``adapter_model.safetensors``."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from grpo_zero.checkpoint.atomic import replace_folder
from grpo_zero.config import LoraConfig
from grpo_zero.errors import UserError
from grpo_zero.json_text import json_object
from grpo_zero.model.decoder import Decoder
from grpo_zero.model.lora import adapter_tensors

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_NOT_OURS = ("use_dora", "fan_in_fan_out", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform")


def save_adapter(decoder: Decoder, lora: LoraConfig, base_model: str, folder: Path) -> None:
    """Write the decoder's adapters; the folder appears whole or not at all."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": list(lora.targets),
        "use_rslora": lora.rslora,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    tensors = {name: tensor.contiguous().cpu() for name, tensor in adapter_tensors(decoder).items()}
    with replace_folder(folder) as aside:
        (aside / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        save_file(tensors, aside / WEIGHTS_FILE, metadata={"format": "pt"})


@torch.no_grad()
def load_adapter(decoder: Decoder, lora: LoraConfig, folder: Path) -> None:
    """Fill the decoder's adapters.

    Raises:
        UserError: no adapter there, one of another shape than the section ``lora`` says, or one that we do not compute.
    """
    config = _read_config(folder)
    for key in _NOT_OURS:
        if config.get(key):
            raise UserError(
                f"{folder / CONFIG_FILE} has {key} {reprlib.repr(config[key])}, which is not computed here: train a plain LoRA."
            )
    if config.get("bias", "none") != "none":
        raise UserError(
            f"{folder / CONFIG_FILE} has trained biases, which are not computed here: train with bias none."
        )
    targets = config.get("target_modules") or []
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise UserError(f"{folder / CONFIG_FILE} has no list of names as target_modules: train a plain LoRA.")
    saved = {
        "rank": config.get("r"),
        "alpha": config.get("lora_alpha"),
        "targets": sorted(targets),
        "rslora": bool(config.get("use_rslora", False)),
    }
    ours = {"rank": lora.rank, "alpha": lora.alpha, "targets": sorted(lora.targets), "rslora": lora.rslora}
    for key, value in saved.items():
        if value != ours[key]:
            raise UserError(
                f"lora.{key} is {ours[key]}, but the adapter in {folder} has {reprlib.repr(value)}: set lora.{key} to that."
            )
    try:
        with safe_open(folder / WEIGHTS_FILE, framework="pt") as file:
            names = set(file.keys())
            for name, tensor in adapter_tensors(decoder).items():
                if name not in names or tuple(file.get_slice(name).get_shape()) != tuple(tensor.shape):
                    raise UserError(
                        f"{folder / WEIGHTS_FILE} does not fit this model: {name} is missing or has another shape; give the "
                        "model it was trained on."
                    )
                tensor.copy_(file.get_tensor(name))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS_FILE} cannot be read ({error}): get it again.") from error


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise UserError(f"{folder} holds no {CONFIG_FILE}: give a folder with an adapter in PEFT's format.")
    config = json_object(path.read_bytes(), str(path), "get it again")
    if config.get("peft_type") != "LORA":
        raise UserError(f"{path} is no LoRA adapter's: expected peft_type LORA.")
    return config
