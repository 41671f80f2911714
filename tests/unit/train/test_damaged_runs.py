"""Whatever a run folder's small files hold, going on ends in a start or in one sentence."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
from helpers.damage import damaged_bytes, damaged_json
from helpers.runs import run_config
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_zero.checkpoint.checksums import CHECKSUMS_FILE, damage, write_checksums
from grpo_zero.cli import main
from grpo_zero.config import Config
from grpo_zero.errors import UserError
from grpo_zero.runs import RUN_FILE, STATE_FILE, check_command, find_run, latest_checkpoint, read_state
from grpo_zero.train.checkpoints import load_optimizer, thin_out
from grpo_zero.train.optimizer import make_optimizer
from grpo_zero.train.policy import load_policy
from grpo_zero.train.resume import find_start
from grpo_zero.train.run import train

STATE = {"step": 4, "num_steps": 4, "moment_bits": 32, "success": 0.5, "is_evaluated": True, "has_checksums": False}


@pytest.fixture(scope="module")
def config(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:
    more = ("data.task=countdown", "training.max_steps=1", "training.eval_interval=0", "training.run_name=run")
    return run_config(model_folder, tmp_path_factory.mktemp("runs"), *more)


@pytest.fixture(scope="module")
def folder(config: Config) -> Path:
    return train(config)


@settings(max_examples=40)
@given(content=damaged_json(STATE))
def test_any_trainer_state(config: Config, folder: Path, content: bytes) -> None:
    checkpoint = latest_checkpoint(folder / "checkpoints")
    path = checkpoint / STATE_FILE
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        start = find_start(config, folder)
        assert start.step >= 0
        assert start.keeps({"step": 0, "kind": "train"}) in (True, False)
    except UserError as error:
        message = str(error)
        assert message.endswith("new training.run_name.")
    finally:
        path.write_bytes(whole)
    assert find_start(config, folder).step == 1


@given(content=damaged_json({"model/a": {"bytes": 3, "sha256": "0" * 64}, "../b": {"bytes": 0, "sha256": ""}}))
def test_any_checksums(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / CHECKSUMS_FILE).write_bytes(content)
    found = damage(folder)
    assert found is None or (len(found) < 1100 and found.isprintable())
    shutil.rmtree(folder)


def test_checksums_look_at_no_file_outside(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    write_checksums(tmp_path)
    entry = json.loads((tmp_path / CHECKSUMS_FILE).read_text())["outside"]
    inside = tmp_path / "inside"
    inside.mkdir()
    for name in ("../outside", str(tmp_path / "outside")):
        (inside / CHECKSUMS_FILE).write_text(json.dumps({name: entry}))
        assert damage(inside) == f"{name} is missing"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"step": -1}', b'{"step": 1, "num_steps": true}']
)
def test_a_damaged_state_is_named_and_stays_out_of_the_way(tmp_path: Path, content: bytes) -> None:
    for step, state in (
        (1, content),
        (2, json.dumps(STATE | {"success": 0.6}).encode()),
        (3, json.dumps(STATE).encode()),
    ):
        (tmp_path / f"step_{step}").mkdir()
        (tmp_path / f"step_{step}" / STATE_FILE).write_bytes(state)
    with pytest.raises(UserError, match=f"{STATE_FILE} .*restore it from a copy"):
        read_state(tmp_path / "step_1")
    thin_out([tmp_path / f"step_{step}" for step in (1, 2, 3)], keep_last=1, keep_every=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_1", "step_2", "step_3"], "step_2 is the best"


@pytest.mark.parametrize("success", [2, -1, "much", True, [0.5]])
def test_a_success_that_is_none(tmp_path: Path, success: object) -> None:
    (tmp_path / STATE_FILE).write_text(json.dumps(STATE | {"success": success}))
    with pytest.raises(UserError, match="success is no share"):
        read_state(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_damaged_run_file_is_named(config: Config, folder: Path, content: bytes) -> None:
    path = folder / RUN_FILE
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        with pytest.raises(UserError, match=f"{RUN_FILE} .*remove that file"):
            check_command(folder, "train")
    finally:
        path.write_bytes(whole)
    assert find_run(config, "train") == folder


@settings(max_examples=40)
@given(data=st.data())
def test_any_optimizer_header(config: Config, folder: Path, data: st.DataObject) -> None:
    checkpoint = latest_checkpoint(folder / "checkpoints")
    path = checkpoint / "optimizer.safetensors"
    whole = path.read_bytes()
    length = 8 + struct.unpack("<Q", whole[:8])[0]
    policy = load_policy(config.model, init_seed=0)
    optimizer = make_optimizer(policy.decoder, config.training)
    path.write_bytes(data.draw(damaged_bytes(whole[:length])) + whole[length:])
    try:
        load_optimizer(optimizer, checkpoint)
    except UserError as error:
        message = str(error)
        assert "optimizer.safetensors" in message
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.jsonl", b'{"step": 1, "kind": "train"}\nnonsense\n'),
        ("samples.jsonl", b"[]\n"),
        ("config.yaml", b"\xff\xfe"),
        ("run.json", b"{"),
    ],
)
def test_the_command_says_what_is_damaged(
    folder: Path, file: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / file
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        assert main(["train", "--resume", str(folder), "training.max_steps=2"]) == 2
    finally:
        path.write_bytes(whole)
    err = capsys.readouterr().err
    assert file in err
    assert err.count("\n") == 1
