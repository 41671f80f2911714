"""Every change of a file is found, and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_zero.checkpoint.atomic import recover, remove_folder
from grpo_zero.checkpoint.checksums import CHECKSUMS_FILE, damage, write_checksums


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped bit": (lambda f: flip(f / "model" / "weights"), "model/weights has changed since it was written"),
    "cut short": (lambda f: (f / "model" / "weights").write_bytes(b"12"), "model/weights has 2 bytes instead of 9"),
    "gone": (lambda f: (f / "state").unlink(), "state is missing"),
    "no checksums": (lambda f: (f / CHECKSUMS_FILE).unlink(), "checksums.json is missing"),
    "checksums cut": (lambda f: (f / CHECKSUMS_FILE).write_text('{"state"'), "checksums.json is damaged"),
    "checksums of no kind": (lambda f: (f / CHECKSUMS_FILE).write_text("[1]"), "checksums.json is damaged"),
    "no digest": (lambda f: (f / CHECKSUMS_FILE).write_text('{"state": {"bytes": 2}}'), "checksums.json is damaged"),
    "bytes of no kind": (
        lambda f: (f / CHECKSUMS_FILE).write_text(json.dumps({"state": {"bytes": [], "sha256": ""}})),
        "checksums.json is damaged",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"123456789")
    (tmp_path / "state").write_text("{}")
    write_checksums(tmp_path)
    return tmp_path


def test_an_untouched_folder_is_whole(folder: Path) -> None:
    assert damage(folder) is None
    (folder / "a note of the user's").write_text("best so far")
    assert damage(folder) is None


@pytest.mark.parametrize("case", CASES)
def test_damage_is_named(folder: Path, case: str) -> None:
    harm, words = CASES[case]
    harm(folder)
    assert damage(folder) == words


def test_a_kill_between_the_two_renames_is_undone(tmp_path: Path) -> None:
    for name in (".step_000001.old", ".step_000002.old", "step_000002", ".step_000003.tmp-17"):
        (tmp_path / name).mkdir()
    (tmp_path / ".step_000001.old" / "state").write_text("1")
    recover(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000001", "step_000002"]
    assert (tmp_path / "step_000001" / "state").read_text() == "1"


def test_a_kill_in_the_midst_of_removing_leaves_nothing_under_the_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, **_: object) -> None:
        (path / "state").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove_folder(folder)
    assert not folder.exists()
    monkeypatch.undo()
    recover(folder.parent)
    assert not [path for path in folder.parent.iterdir() if folder.name in path.name]
