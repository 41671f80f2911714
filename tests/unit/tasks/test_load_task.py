"""load_task, and that tasks stay free of torch."""

import subprocess
import sys

import pytest

from grpo_zero.errors import UserError
from grpo_zero.tasks import Task, load_task
from grpo_zero.tasks.countdown import CountdownTask


def test_countdown_by_name_with_options() -> None:
    task = load_task("countdown", response_start="", system_prompt=None)
    assert isinstance(task, CountdownTask)
    assert isinstance(task, Task)
    assert task.response_start == ""


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'countdwn'.*Did you mean 'countdown'"):
        load_task("countdwn")


def test_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'promt'.*Did you mean 'prompt'"):
        load_task("countdown", promt="{nums} {target}")


def test_tasks_import_no_torch() -> None:
    code = (
        "import sys, grpo_zero.tasks, grpo_zero.tasks.countdown_data, grpo_zero.tasks.search_text;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
