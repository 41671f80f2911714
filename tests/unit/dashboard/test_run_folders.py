"""Which folders are runs, what is read of them, and what never is."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from helpers.recorded import start_run, write_steps

from grpo_zero.dashboard.run_folders import RunFolder, check_paths, find_runs, setting, state_of
from grpo_zero.errors import UserError


def test_a_run_folder_or_a_folder_of_them(tmp_path: Path) -> None:
    start_run(tmp_path / "runs" / "a", 10)
    start_run(tmp_path / "runs" / "sweep" / "b", 10)
    (tmp_path / "runs" / "notes").mkdir()
    assert set(find_runs([tmp_path / "runs"])) == {"a", "sweep/b"}
    assert set(find_runs([tmp_path / "runs" / "a"])) == {"a"}
    assert len(find_runs([tmp_path / "runs", tmp_path / "runs" / "a"])) == 2, "the same folder twice is one run"


def test_runs_of_one_name_stay_apart(tmp_path: Path) -> None:
    for parent in ("x", "y"):
        start_run(tmp_path / parent / "a", 10)
    runs = find_runs([tmp_path / "x", tmp_path / "y"])
    assert set(runs) == {"a", "a (2)"}
    assert len({run.path for run in runs.values()}) == 2


def test_a_run_that_starts_later_appears(tmp_path: Path) -> None:
    assert find_runs([tmp_path]) == {}
    start_run(tmp_path / "late", 10)
    assert list(find_runs([tmp_path])) == ["late"]


def test_a_path_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no folder .*runz"):
        check_paths([tmp_path / "runz"])


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"planned_gib": 7}')
    folder = start_run(tmp_path / "run", 10)
    (folder / "plan.json").symlink_to(secret)
    run = RunFolder("run", folder)
    assert run.file("plan.json") is None
    assert run.planned_gib() is None
    (folder / "plan.json").unlink()
    (folder / "real_plan.json").write_text('{"planned_gib": 7}')
    (folder / "plan.json").symlink_to(folder / "real_plan.json")
    assert run.planned_gib() == 7


def test_files_that_are_damaged_count_as_missing(tmp_path: Path) -> None:
    folder = start_run(tmp_path / "run", 10)
    run = RunFolder("run", folder)
    (folder / "plan.json").write_text('{"planned_gib": ')
    (folder / "config.yaml").write_text("training: [")
    assert run.planned_gib() is None
    assert run.config() == {}
    assert setting(run.config(), "training", "max_steps") is None


def test_a_config_is_read_again_when_it_was_written_again(tmp_path: Path) -> None:
    folder = start_run(tmp_path / "run", 10)
    run = RunFolder("run", folder)
    assert setting(run.config(), "training", "max_steps") == 10
    time.sleep(0.02)
    (folder / "config.yaml").write_text(json.dumps({"training": {"max_steps": 20}}))
    assert setting(run.config(), "training", "max_steps") == 20


def test_the_state_of_a_run(tmp_path: Path) -> None:
    now = time.time()
    assert state_of(10, 10, now - 1e6, 1.0) == "finished"
    assert state_of(3, 10, now - 5, 1.0) == "running"
    assert state_of(3, None, now - 5, 1.0) == "running"
    assert state_of(3, 10, now - 1000, 1.0) == "stopped"
    assert state_of(3, 10, now - 1000, 600.0) == "running", "a step of ten minutes is silent for long"
    assert state_of(0, 10, None, 0.0) == "stopped"


def test_writing_steps_in_two_goes_is_what_a_run_does(tmp_path: Path) -> None:
    folder = start_run(tmp_path / "run", 4)
    write_steps(folder, 0, 2, 4)
    write_steps(folder, 3, 4, 4)
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4]
