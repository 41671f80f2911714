"""A model's shape from its config.json alone: no weights, no tokenizer, no torch."""

from __future__ import annotations

from pathlib import Path

from grpo_zero.json_text import json_object
from grpo_zero.model.families import spec_from_config
from grpo_zero.model.spec import ModelSpec
from grpo_zero.packaged import embedded_folder

CONFIG_FILE = "config.json"


def local_spec(model: str) -> ModelSpec | None:
    """The shape of a model folder, a config.json or ``embedded:NAME``; None where ``model`` is none of these.

    Raises:
        UserError: no such packaged model, the file is no JSON object, or describes no model that we compute.
    """
    path = embedded_folder(model) or Path(model).expanduser()
    path = path / CONFIG_FILE if path.is_dir() else path
    if path.suffix != ".json" or not path.is_file():
        return None
    config = json_object(path.read_bytes(), str(path), "expected a model's config.json: download it again")
    return spec_from_config(config, str(path))
