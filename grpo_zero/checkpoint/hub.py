"""A Hugging Face hub id to a local folder, where there is a network or a cached copy: of a model, or of a data set."""

from __future__ import annotations

import re
from pathlib import Path

from grpo_zero.errors import UserError
from grpo_zero.tasks.row_files import ENDINGS

PATTERNS = ("*.json", "*.safetensors", "merges.txt", "*.jinja")
"""All that we read of a model repository."""
DATASET_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(/[\w./-]+)?")
"""``org/name``, or a folder of it."""


def download(repo_id: str, *, weights: bool = True) -> Path:
    """The folder of ``org/name``, downloaded or from the local hub cache.

    Raises ``UserError`` when there is no such repository, no access to it, or neither network nor
    cached copy.
    """
    patterns = [name for name in PATTERNS if weights or name != "*.safetensors"]
    return _snapshot(
        repo_id,
        patterns,
        "model",
        example="Qwen/Qwen2.5-0.5B-Instruct",
        otherwise="or run `uv run grpo-zero train`, whose packaged model needs no download",
    )


def data_path(path: str) -> str:
    """``path`` itself where something is there or it is no hub id; else the folder of the data set, downloaded or cached.

    An id is ``org/name``, or ``org/name/folder`` for a part of it. Raises ``UserError`` as ``download`` does.
    """
    if Path(path).exists() or not DATASET_ID.fullmatch(path) or path.endswith(ENDINGS) or ".." in path.split("/"):
        return path
    organisation, name, *folder = path.split("/", 2)
    patterns = [f"{folder[0]}/*{ending}" if folder else f"*{ending}" for ending in ENDINGS]
    root = _snapshot(
        f"{organisation}/{name}",
        patterns,
        "data set",
        example="openai/gsm8k",
        otherwise="or make problems here with data.path=generate",
    )
    return str(root.joinpath(*folder))


def _snapshot(repo_id: str, patterns: list[str], kind: str, *, example: str, otherwise: str) -> Path:
    from huggingface_hub import errors, snapshot_download  # slow to import, rarely needed

    is_data = kind == "data set"
    try:
        if is_data:
            return Path(snapshot_download(repo_id, allow_patterns=patterns, repo_type="dataset"))
        return Path(snapshot_download(repo_id, allow_patterns=patterns))
    except errors.GatedRepoError as error:
        raise UserError(
            f"The {kind} {repo_id} needs its licence accepted; expected a login that has access: "
            f"accept it on the page of {repo_id} and run `hf auth login`."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise UserError(
            f"There is no {kind} {repo_id!r} on the Hugging Face hub that you may read; expected a "
            f"local folder or an id such as {example}: check the spelling, or run "
            f"`hf auth login` for a private one."
        ) from error
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
        raise UserError(
            f"The {kind} {repo_id} is not in the local hub cache and can't be downloaded "
            f"({type(error).__name__}); expected a network or a local copy: on a machine with a "
            f"network run `hf download {repo_id}{' --repo-type dataset' * is_data} --local-dir "
            f"{repo_id.split('/')[-1]}` and give that folder's path, {otherwise}."
        ) from error
