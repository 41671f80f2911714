"""``grpo-zero export``: write a model out as a Hugging Face folder, in the chosen precision."""

from __future__ import annotations

from pathlib import Path

import torch

from grpo_zero.checkpoint.load import load_decoder
from grpo_zero.checkpoint.save import save_folder
from grpo_zero.checkpoint.source import open_source
from grpo_zero.runs import model_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def export(source: str, target: Path, dtype: str | None) -> None:
    """Write ``source`` to the folder ``target``.

    Args:
        source: anything ``open_source`` takes, or a run or checkpoint folder (then its newest model).
        target: a folder that does not exist yet.
        dtype: of the file; None keeps the source's, float32 for a GGUF file.

    Raises:
        UserError: nothing to export, or the target exists.
    """
    opened = open_source(model_of(source))
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
