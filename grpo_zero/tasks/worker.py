"""A task's verifier in processes of their own, with a time limit: what hangs or dies costs one answer, not the run.

The limit is kept by ending the process, so it holds for code that never gives way, and from any thread.
"""

from __future__ import annotations

import multiprocessing
import pickle
import queue
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

from grpo_zero.tasks.base import Group, Task
from grpo_zero.tasks.user_task import failure
from grpo_zero.types import Problem, Verdict

_SPAWN = multiprocessing.get_context("spawn")
START_S = 60.0
"""Seconds that a process may take to load the task."""


class IsolatedTask:
    """A task whose ``verify`` runs elsewhere.

    Args:
        task: asks the questions here.
        load_task: makes the same task in a process; it can be pickled.
        timeout_s: most seconds for one answer.
        num_workers: processes; each judges one answer at a time.
    """

    def __init__(self, task: Task, load_task: Callable[[], Task], timeout_s: float, num_workers: int) -> None:
        self.task, self.name, self.response_start, self.example = task, task.name, task.response_start, task.example
        self.timeout_s = timeout_s
        self.judges_groups = getattr(task, "verify_group", None) is not None
        # Last in, first out: a process that runs already is taken before another is started.
        self.workers: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for _ in range(num_workers):
            self.workers.put(_Worker(load_task))
        self.threads = ThreadPoolExecutor(num_workers)

    def load(self, path: str, *, test_size: int, **generator: Any) -> tuple[list[Any], list[Any], dict[str, int]]:
        """As the task's."""
        return self.task.load(path, test_size=test_size, **generator)

    def problem(self, row: Mapping[str, Any]) -> Problem:
        """As the task's."""
        return self.task.problem(row)

    def verify(self, problem: Problem, completion: str, finished: bool = True) -> Verdict:
        """As the task's; a failure where it takes too long or its process dies."""
        return self._ask("verify", (problem, completion, finished), self.timeout_s)

    def verify_all(self, answers: Sequence[tuple[Problem, str, bool]]) -> list[Verdict]:
        """Many answers, as many at a time as there are processes, in order."""
        return list(self.threads.map(lambda answer: self.verify(*answer), answers))

    def verify_groups(self, groups: Sequence[Group]) -> list[list[Verdict]]:
        """As ``verify_all``; with a task that judges groups, one group at a time, within its answers' limits together."""
        if self.judges_groups:
            return list(self.threads.map(lambda group: self._verify_group(*group), groups))
        verdicts = iter(self.verify_all([(problem, *answer) for problem, answers in groups for answer in answers]))
        return [list(islice(verdicts, len(answers))) for _, answers in groups]

    def _verify_group(self, problem: Problem, answers: Sequence[tuple[str, bool]]) -> list[Verdict]:
        said = self._ask("verify_group", (problem, answers), self.timeout_s * len(answers))
        return [said] * len(answers) if isinstance(said, Verdict) else said

    def _ask(self, method: str, arguments: tuple[Any, ...], timeout_s: float) -> Any:
        """What the method returns in a process that is free; a failure where it takes too long or its process dies."""
        worker = self.workers.get()
        try:
            return worker.ask(method, arguments, timeout_s)
        finally:
            self.workers.put(worker)

    def close(self) -> None:
        """End all processes."""
        self.threads.shutdown()
        while not self.workers.empty():
            self.workers.get().stop()


class _Worker:
    """One process, started when it is first needed and again after it had to be ended."""

    def __init__(self, load_task: Callable[[], Task]) -> None:
        self.load_task = load_task
        self.process: Any = None
        self.connection: Connection

    def ask(self, method: str, arguments: tuple[Any, ...], timeout_s: float) -> Any:
        try:
            if self.process is None:
                self._start()
            self.connection.send((method, arguments))
            if not self.connection.poll(timeout_s):
                self.stop()
                return failure(f"{method} took longer than {timeout_s:g} s")
            return self.connection.recv()
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            return failure(f"the row cannot be sent to the process that verifies ({error})")
        except (EOFError, OSError) as error:
            self.stop()
            return failure(f"the process that verifies died ({type(error).__name__})")

    def _start(self) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, self.load_task), daemon=True)
        self.process.start()
        theirs.close()
        if not self.connection.poll(START_S):
            raise EOFError
        self.connection.recv()

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.connection.close()
            self.process = None


def _serve(connection: Connection, load_task: Callable[[], Task]) -> None:
    """The process: load the task, then judge until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to handle
    task = load_task()
    connection.send("ready")
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        connection.send(getattr(task, method)(*arguments))
