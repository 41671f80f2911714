"""``grpo-zero export``: write a model out as a Hugging Face folder, in the chosen precision."""

from __future__ import annotations

from pathlib import Path

import torch

from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.save import save_folder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.errors import UserError
from grpo_zero.train.checkpoints import latest_checkpoint

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def export(source: str, target: Path, dtype: str | None) -> None:
    """Write ``source`` to the folder ``target``.

    Args:
        source: anything ``open_source`` takes, or a run or checkpoint folder (then its last checkpoint's model).
        target: a folder that does not exist yet.
        dtype: of the file; None keeps the source's, float32 for a GGUF file.

    Raises:
        UserError: nothing to export, or the target exists.
    """
    opened = open_source(str(model_folder(source)))
    file_dtype = opened.tensor(min(opened.names)).dtype
    # Weights pass through unrounded: bf16 and float16 files hold values that float32 has exactly.
    decoder = load_decoder(opened, dtype=torch.float32, device=torch.device("cpu"))
    chosen = DTYPES[dtype] if dtype else file_dtype
    save_folder(
        target,
        dict(decoder.named_parameters()),
        opened.spec,
        config=opened.config,
        tokenizer=opened.tokenizer,
        generation_config=opened.generation_config,
        dtype=chosen,
    )
    print(f"wrote {target} ({opened.spec.num_parameters:,} weights, {str(chosen).removeprefix('torch.')})")


def model_folder(source: str) -> Path | str:
    """The model inside a run or checkpoint folder; any other source as it is."""
    path = Path(source)
    for folder in (path, path / "checkpoints"):
        if folder.is_dir() and (latest := latest_checkpoint(folder)) is not None:
            return latest / "model"
    if (path / "model" / "config.json").is_file():
        return path / "model"
    if path.is_dir() and (path / "config.yaml").is_file():
        raise UserError(f"{source} is a run folder without a checkpoint: name a model folder instead.")
    return source
