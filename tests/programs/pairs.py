# SPDX-License-Identifier: Apache-2.0
"""A server and a client, each a real program started by `verbena run`, and what they said."""

from __future__ import annotations

import os
import random
import re
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Start
from tests.support import end_group

HOST = "127.0.0.1"
LISTEN_WITHIN = 20.0
# Below the ports that Linux gives to connecting sockets.
PORTS = range(20_000, 32_768)
TCP_LISTEN = "0A"
COMPLAINTS = re.compile(
    r"error|fail|couldn't|unable|invalid|warn|mismatch|unsupported|not supported|abort|verbena:",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Side:
    """One program that has ended: its exit status (negative: the signal) and all that it said."""

    name: str
    status: int
    output: str

    def __str__(self) -> str:
        return f"---- {self.name}: exit status {self.status}\n{self.output}"


@dataclass(frozen=True)
class Pair:
    """Both sides of a run."""

    server: Side
    client: Side

    def __str__(self) -> str:
        return f"{self.server}\n{self.client}"

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.server, self.client


def free_port() -> int:
    """A TCP port that nothing uses now; chosen at random, so that parallel runs seldom collide."""
    for port in random.sample(PORTS, k=200):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError("no free TCP port among 200 tried")


def listens(port: int) -> bool:
    """Whether some process listens on a TCP port: looked up, for a connection would be accepted."""
    ending = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = Path(table).read_text().splitlines()[1:] if Path(table).exists() else []
        for _, local, _, state, *_ in map(str.split, lines):
            if state == TCP_LISTEN and local.endswith(ending):
                return True
    return False


def wait_listening(process: subprocess.Popen[str], port: int) -> None:
    """Until the process listens, or has ended: then its output says why."""
    deadline = time.monotonic() + LISTEN_WITHIN
    while process.poll() is None and not listens(port):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{process.args!r} does not listen on port {port}")
        time.sleep(0.005)


# Before a command: its lines come as they are said, also where its output is no terminal.
LINE_BY_LINE = ("stdbuf", "-oL")


def wait_for_words(process: subprocess.Popen[str], words: str) -> None:
    """Until a program that was started LINE_BY_LINE has said this, or has ended.

    The output until then is not in what ``finish`` returns. Raises TimeoutError with it.
    """
    assert process.stdout is not None
    deadline, said = time.monotonic() + LISTEN_WITHIN, ""
    while words not in said:
        left = max(deadline - time.monotonic(), 0)
        if not select.select([process.stdout], [], [], left)[0]:
            raise TimeoutError(f"{process.args!r} has not said {words!r}, but: {said}")
        more = os.read(process.stdout.fileno(), 4096).decode()
        if not more:
            return
        said += more


def finish(name: str, process: subprocess.Popen[str], timeout: float) -> Side:
    """Wait for a program's end; one that does not end is killed, which its status shows."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += f"\n(still ran after {timeout:g} s)"
    return Side(name, process.returncode, output)


@dataclass(frozen=True)
class Running:
    """A server and its client, both started."""

    server: subprocess.Popen[str]
    client: subprocess.Popen[str]

    def finish(self, timeout: float = 40) -> Pair:
        """Both sides' ends; once one has failed, the other has five seconds."""
        client = finish("client", self.client, timeout)
        server = finish("server", self.server, timeout if client.status == 0 else 5)
        return Pair(server, client)


def start_pair(
    start: Start,
    *program: str,
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    client_only: tuple[str, ...] = (),
    server_only: tuple[str, ...] = (),
) -> Running:
    """Start a server and, as soon as it listens, a client, by the convention that perftest,
    the pingpongs and ucx_perftest share: `PROGRAM -p PORT` and `PROGRAM -p PORT HOST`.
    """
    port = free_port()
    command = (*program, "-p", str(port))
    server = start(*command, *server_only, options=options, env=env)
    wait_listening(server, port)
    return Running(server, start(*command, *client_only, HOST, options=options, env=env))


def exchange_with_many(start: Start, clients: int, *program: str) -> list[Side]:
    """A server for so many clients (`-c`), and all of them at once; the server is the first."""
    port = free_port()
    command = (*program, "-p", str(port))
    running = [start(*command, "-c", str(clients))]
    try:
        wait_listening(running[0], port)
        running += [start(*command, HOST) for _ in range(clients)]
        names = ["server", *(f"client {i}" for i in range(clients))]
        return [finish(name, side, 40) for name, side in zip(names, running, strict=True)]
    finally:
        for side in running:
            end_group(side)


def complaints(output: str, allowed: str = "") -> list[str]:
    """The lines that tell of trouble, but for those that have the allowed words."""
    lines = [line for line in output.splitlines() if COMPLAINTS.search(line)]
    return [line for line in lines if not allowed or allowed not in line]


def assert_good(pair: Pair, allowed: str = "") -> None:
    """Both programs ended well and neither complained."""
    assert [side.status for side in pair.sides] == [0, 0], str(pair)
    said = [line for side in pair.sides for line in complaints(side.output, allowed)]
    assert said == [], str(pair)


@contextmanager
def leaves_nothing() -> Iterator[dict[str, str]]:
    """Programs run inside, with the yielded environment, must leave no process and no file."""
    mark = f"run-{os.getpid()}-{random.getrandbits(64):x}"
    before = shared_memory()
    with tempfile.TemporaryDirectory() as folder:
        yield {"VERBENA_TEST_MARK": mark, "TMPDIR": folder}
        assert marked_processes(mark) == []
        assert os.listdir(folder) == []
    assert sorted(shared_memory() - before) == []


def shared_memory() -> set[str]:
    """Verbena's names where shared memory has names (not /tmp: tests beside this one use that)."""
    return {name for name in os.listdir("/dev/shm") if "verbena" in name}


def marked_processes(mark: str) -> list[str]:
    """The command lines of processes that still run with a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is another user's
            continue
    return found
