# SPDX-License-Identifier: Apache-2.0
"""Runs several variants of a scenario at once, each in a process of its own.

``verbena sim`` calls ``run_all``. Results come in the order of the variants, whichever ends first.
Processes are forked: the command has no other threads, and importing the modules again would take
longer than most runs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from verbena.cli.progress import Line, Report, watcher

if TYPE_CHECKING:
    from verbena.sim import Scenario, ScenarioResult

__all__ = ["Run", "jobs_for", "run_all"]

BEFORE_IT_BEGAN = 128 + signal.SIGINT  # exit code of a process that had nothing to show yet


@dataclass(frozen=True)
class Run:
    """A scenario to run, its captures' files by link, and the bytes that are kept of each
    packet."""

    scenario: Scenario
    captures: Mapping[str, Path]
    capture_bytes: int | None

    def result(self, line: Line) -> ScenarioResult:
        """Run the scenario in this process."""
        look = None
        if not line.quiet:
            duration = self.scenario.duration
            look = watcher(self.scenario, lambda report: line.say(report.text(duration)))
        return self.scenario.run(
            progress=look, captures=self.captures, capture_bytes=self.capture_bytes
        )


def jobs_for(runs: Sequence[Run], asked: int | None) -> int:
    """Return the number of processes: that of runs, limited by cores and memory."""
    from verbena.sim import limits

    cores = asked or len(os.sched_getaffinity(0))
    most = max(run.scenario.memory for run in runs)
    return max(1, min(len(runs), cores, limits.available_memory() // max(most, 1)))


def run_all(runs: Sequence[Run], jobs: int, line: Line) -> Iterator[tuple[int, ScenarioResult]]:
    """Yield indices in ``runs`` and results, in order of the indices; fewer of them after Ctrl-C.

    Raises the exception of a run, after the others were ended, and ChildProcessError for a process
    that ended without a result.
    """
    if jobs == 1:
        for number, run in enumerate(runs):
            result = run.result(line)
            line.clear()
            yield number, result
            if result.end == "interrupted":
                return
        return
    with _Processes(runs, jobs, line) as processes:
        yield from processes.results()


class _Processes:
    """The processes of the runs, at most ``jobs`` at once."""

    def __init__(self, runs: Sequence[Run], jobs: int, line: Line) -> None:
        self.runs, self.jobs, self.line = runs, jobs, line
        self.waiting = list(range(len(runs)))
        self.running: dict[Connection, tuple[int, BaseProcess]] = {}
        self.done: dict[int, ScenarioResult] = {}
        self.reports: dict[int, Report] = {}
        self.interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """End the processes that are left."""
        for connection, (_, process) in self.running.items():
            process.terminate()
            process.join()
            connection.close()

    def results(self) -> Iterator[tuple[int, ScenarioResult]]:
        shown = 0
        while self.waiting or self.running:
            try:
                self._step()
            except KeyboardInterrupt:
                self._interrupt()
            while shown in self.done:
                self.line.clear()
                yield shown, self.done[shown]
                shown += 1
        self.line.clear()
        for number in sorted(number for number in self.done if number >= shown):
            yield number, self.done[number]  # follows a run that Ctrl-C kept from starting

    def _step(self) -> None:
        while self.waiting and len(self.running) < self.jobs:
            self._start(self.waiting.pop(0))
        for connection in wait(list(self.running), timeout=0.5):
            assert isinstance(connection, Connection)
            self._receive(connection)
        if self.reports:
            self.line.say(self._text())

    def _start(self, number: int) -> None:
        context = get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(self.runs[number], theirs, self.line.quiet))
        process.start()
        theirs.close()
        self.running[ours] = number, process

    def _receive(self, connection: Connection) -> None:
        number, process = self.running[connection]
        try:
            what = connection.recv()
        except EOFError:
            process.join()
            self._forget(connection)
            if self.interrupted and process.exitcode == BEFORE_IT_BEGAN:
                return
            name = self.runs[number].scenario.name
            raise ChildProcessError(f"{name}: {_how(process.exitcode)}") from None
        if isinstance(what, Report):
            self.reports[number] = what
            return
        process.join()
        self._forget(connection)
        if isinstance(what, BaseException):
            raise what
        self.done[number] = replace(what, fabric=self.runs[number].scenario.fabric)

    def _forget(self, connection: Connection) -> None:
        number, _ = self.running.pop(connection)
        self.reports.pop(number, None)
        connection.close()

    def _interrupt(self) -> None:
        """Handle Ctrl-C: running processes return their results so far, and no other one starts. A
        second Ctrl-C raises KeyboardInterrupt."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.waiting.clear()
        for _, process in self.running.values():
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGINT)

    def _text(self) -> str:
        parts = [
            f"{run.scenario.name.rpartition(', ')[2]} {self._state(number)}"
            for number, run in enumerate(self.runs)
        ]
        return f"{self.runs[0].scenario.name.rpartition(', ')[0]}: {', '.join(parts)}"

    def _state(self, number: int) -> str:
        if number in self.done:
            return "done"
        return f"{self.reports[number].part:.0%}" if number in self.reports else "waits"


def _run(run: Run, connection: Connection, quiet: bool) -> None:
    """Run in a child process: send reports, and then the result or the exception."""

    def once(signum: int, frame: object) -> None:
        """Raise KeyboardInterrupt once: Ctrl-C may come from the terminal and from the parent."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, once)
    try:
        look = None if quiet else watcher(run.scenario, connection.send)
        result = run.scenario.run(
            progress=look, captures=run.captures, capture_bytes=run.capture_bytes
        )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        connection.send(replace(result, fabric=None))
    except KeyboardInterrupt:
        os._exit(BEFORE_IT_BEGAN)
    except BaseException as error:
        connection.send(error)
    connection.close()
    os._exit(0)  # without flushing or removing files of the parent


def _how(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed, as where memory is short: --jobs 1 runs one after the other"
    return f"its process ended without a result (exit code {code})"
