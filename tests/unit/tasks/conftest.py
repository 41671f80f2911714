"""Fixtures of the task tests: real data, where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder ``shared/data`` beside the checkout, or ``data`` below GRPO_ZERO_SHARED."""
    beside_checkout = Path(__file__).resolve().parents[4] / "shared"
    data = Path(os.environ.get("GRPO_ZERO_SHARED", beside_checkout)) / "data"
    if not data.is_dir():
        pytest.skip(f"real data not at hand: no {data}; set GRPO_ZERO_SHARED")
    return data
