"""Fixtures of all tests: real data where it is at hand, one tiny decoder a family, and the folder of a tiny countdown model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.runs import DigitsTask, make_model_folder
from helpers.tiny import SPECS, tiny_decoder
from hypothesis import settings

from grpo_zero.model.decoder import Decoder
from grpo_zero.tasks import TASKS

# The same examples in every run, and no time limit for one, which a busy machine may break. GRPO_ZERO_EXAMPLES=5000 searches on,
# with other examples each time.
num_examples = os.environ.get("GRPO_ZERO_EXAMPLES")
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile(
    "search", max_examples=int(num_examples or 100), deadline=None, database=None, print_blob=True
)
settings.load_profile("search" if num_examples else "fixed")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """``data`` of the shared folder: beside the checkout, or where GRPO_ZERO_SHARED says."""
    beside_checkout = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("GRPO_ZERO_SHARED", beside_checkout)) / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared test data at {folder}; set GRPO_ZERO_SHARED to the shared folder")
    return folder


@pytest.fixture(params=list(SPECS))
def family(request: pytest.FixtureRequest) -> str:
    """Each family in turn."""
    return request.param


@pytest.fixture
def decoder(family: str) -> Decoder:
    """Random weights of each family in turn."""
    return tiny_decoder(family)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny countdown model without weights; do not change it."""
    return make_model_folder(tmp_path_factory.mktemp("model") / "tiny-countdown")


@pytest.fixture
def digits_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ``data.task=digits`` known."""
    monkeypatch.setitem(TASKS, "digits", DigitsTask)
