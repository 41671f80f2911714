"""Where the shared test data lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """``data`` of the shared folder: beside the checkout, or where GRPO_ZERO_SHARED says."""
    folder = Path(os.environ.get("GRPO_ZERO_SHARED", REPO.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared test data at {folder}; set GRPO_ZERO_SHARED to the shared folder")
    return folder
