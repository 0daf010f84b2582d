# SPDX-License-Identifier: Apache-2.0
"""Runs two communicating programs, pinned, with a time limit; no process is left behind.

All cases use this.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from verbena.measure.cores import Cores, pinned

SERVER_START = 15.0
SERVER_END = 10.0
LISTENING = "0A"
KEPT_LINES = 6
POLL = 0.05  # this process shares the measured cores


class MeasureError(Exception):
    """A program that could not be measured; the text has its output and what to do."""


class SkipError(MeasureError):
    """A measurement that is not possible on this machine; the text says why."""


@dataclass(frozen=True)
class Program:
    """A command line and its environment; `fds` are inherited."""

    words: Sequence[str]
    environment: Mapping[str, str]
    fds: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return Path(self.words[0]).name


class Process:
    """A running program in a session of its own, with its output in a file."""

    def __init__(self, program: Program, core: int, output: IO[str]) -> None:
        self.program = program
        self.output = output
        with pinned(core):
            self.popen = subprocess.Popen(
                list(program.words),
                env=dict(program.environment),
                pass_fds=program.fds,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        self.output.flush()
        return Path(self.output.name).read_text(errors="replace")

    def wait(self, timeout: float) -> str:
        """Return its whole output. Raises MeasureError when it fails or does not end in time."""
        try:
            status = self.popen.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"{self.program.name} did not end in time{self.tail()}") from error
        if status:
            raise MeasureError(f"{self.program.name} {ending(status)}{self.tail()}")
        return self.text()

    def tail(self) -> str:
        """Return the end of its output, for the text of an error."""
        lines = [line for line in self.text().splitlines() if line.strip(" -")]
        return ": " + " | ".join(lines[-KEPT_LINES:]) if lines else " and said nothing"

    def kill(self) -> None:
        """Kill it and all processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


def ending(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"failed with exit status {status}"


@contextmanager
def running(program: Program, core: int) -> Iterator[Process]:
    """Start a program; kill what is left of it at the end."""
    with tempfile.NamedTemporaryFile("w+", prefix="verbena-measure-") as output:
        process = Process(program, core, output)
        try:
            yield process
        finally:
            process.kill()


def run_server_and_client(
    server: Program, client: Program, port: int, cores: Cores, timeout: float
) -> tuple[str, str]:
    """Start `server`, wait until it listens on TCP `port`, run `client`; return both outputs.

    Raises MeasureError with the output of the program that failed.
    """
    with running(server, cores.first) as first:
        wait_until(lambda: listens(port), first, SERVER_START)
        with running(client, cores.second) as second:
            try:
                said = second.wait(timeout)
            except MeasureError as error:
                raise with_server(error, first) from error
            return first.wait(SERVER_END), said


def with_server(error: MeasureError, server: Process) -> MeasureError:
    """The client's error, and the server's own if it failed too."""
    status = server.popen.poll()
    why = f"; its server {ending(status)}{server.tail()}" if status else ""
    return MeasureError(f"{error}{why}")


def run_together(first: Program, second: Program, cores: Cores, timeout: float) -> tuple[str, str]:
    """Run two programs at once; return both outputs. Raises MeasureError as soon as one fails."""
    with ExitStack() as stack:
        a = stack.enter_context(running(first, cores.first))
        b = stack.enter_context(running(second, cores.second))
        deadline = time.monotonic() + timeout
        while a.popen.poll() is None and not b.popen.poll() and time.monotonic() < deadline:
            time.sleep(POLL)
        if b.popen.poll():
            b.wait(0)
        return a.wait(max(deadline - time.monotonic(), 0)), b.wait(SERVER_END)


def run_alone(program: Program, core: int, timeout: float) -> str:
    """Run one program; return its output. Raises MeasureError."""
    with running(program, core) as process:
        return process.wait(timeout)


def python_environment() -> dict[str, str]:
    """The environment in which a new Python finds every module that this one finds.

    A module may come from a folder that only this process searches: the working directory, or one
    that pytest added.
    """
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def wait_until(ready: Callable[[], bool], process: Process, timeout: float) -> None:
    """Wait for `ready()`. Raises MeasureError when the process ends before, or at the timeout."""
    deadline = time.monotonic() + timeout
    while not ready():
        status = process.popen.poll()
        if status is not None:
            raise MeasureError(f"{process.program.name} {ending(status)}{process.tail()}")
        if time.monotonic() > deadline:
            raise MeasureError(f"{process.program.name} does not listen{process.tail()}")
        time.sleep(0.005)


def listens(port: int) -> bool:
    """Return whether a process listens on TCP `port`; read from /proc, since a server would notice
    a connection."""
    return any(port_listens(Path(table), port) for table in ("/proc/net/tcp", "/proc/net/tcp6"))


def port_listens(table: Path, port: int) -> bool:
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return False
    return any(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows)


def free_port() -> int:
    """A TCP port that nothing uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
