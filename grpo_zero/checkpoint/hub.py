"""A Hugging Face hub id to a local folder, where there is a network or a cached copy."""

from __future__ import annotations

from pathlib import Path

from grpo_zero.errors import UserError

PATTERNS = ("*.json", "*.safetensors", "merges.txt", "*.jinja")
"""All that we read of a model repository."""


def download(repo_id: str, *, weights: bool = True) -> Path:
    """The folder of ``org/name``, downloaded or from the local hub cache.

    Raises ``UserError`` when there is no such repository, no access to it, or neither network nor
    cached copy.
    """
    from huggingface_hub import errors, snapshot_download  # slow to import, rarely needed

    patterns = [name for name in PATTERNS if weights or name != "*.safetensors"]
    try:
        return Path(snapshot_download(repo_id, allow_patterns=patterns))
    except errors.GatedRepoError as error:
        raise UserError(
            f"The model {repo_id} needs its licence accepted; expected a login that has access: "
            f"accept it on the page of {repo_id} and run `hf auth login`."
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise UserError(
            f"There is no model {repo_id!r} on the Hugging Face hub that you may read; expected a "
            f"local folder or an id such as Qwen/Qwen2.5-0.5B-Instruct: check the spelling, or run "
            f"`hf auth login` for a private one."
        ) from error
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
        raise UserError(
            f"The model {repo_id} is not in the local hub cache and can't be downloaded "
            f"({type(error).__name__}); expected a network or a local copy: on a machine with a "
            f"network run `hf download {repo_id} --local-dir {repo_id.split('/')[-1]}` and give "
            f"that folder's path, or run `uv run grpo-zero train`, whose packaged model needs no "
            f"download."
        ) from error
