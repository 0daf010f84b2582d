# SPDX-License-Identifier: Apache-2.0
"""An agent whose file descriptors are used up: it sleeps, says so once, goes on later, and ends."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import described, wait_until
from tests.roce.networks import Host
from tests.support import clean_environment, end_group
from verbena._accepting import Acceptor
from verbena.subnet_process.server import FabricServer

CHILD = str(Path(__file__).with_name("low_limit_child.py"))
LIMIT = 40  # with what the agent has open, fewer than CONNECTIONS are left
CONNECTIONS = 60
Child = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def child(host: Host) -> Iterator[Child]:
    started: list[subprocess.Popen[str]] = []

    def run(*words: object) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            host.command(sys.executable, CHILD, *map(str, words)),
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(made)
        return made

    yield run
    for process in started:
        end_group(process)


def with_agent(host: Host, child: Child, *words: object) -> subprocess.Popen[str]:
    agent = child("agent", *words)
    wait_until(lambda: described(host) is not None)
    return agent


def using_them_up(child: Child) -> subprocess.Popen[str]:
    program = child("connect", CONNECTIONS)
    assert program.stdout is not None
    assert program.stdout.readline() == "connected\n"
    return program


def ended(agent: subprocess.Popen[str]) -> tuple[list[str], float]:
    """Wait for the agent's end; return what it has reported, and its processor time."""
    output, _ = agent.communicate(timeout=30)
    *told, last = output.splitlines()
    return told, float(last.removeprefix("processor "))


def descriptors(pid: int) -> list[str]:
    return list(map(str, Path(f"/proc/{pid}/fd").iterdir()))


def test_it_raises_its_limit_to_the_hard_one(host: Host, child: Child) -> None:
    agent = with_agent(host, child, LIMIT, 200, 1)
    program = using_them_up(child)
    wait_until(lambda: len(descriptors(agent.pid)) > CONNECTIONS)
    program.communicate(timeout=10)
    assert ended(agent)[0] == []


def test_an_agent_without_descriptors_sleeps_and_ends_when_nobody_is_left(
    host: Host, child: Child
) -> None:
    agent = with_agent(host, child, LIMIT, LIMIT, 3)
    program = using_them_up(child)
    told, processor = ended(agent)
    assert program.poll() is None  # its connections are none that keep an agent
    assert len(told) == 1
    assert f"process {agent.pid} has all {LIMIT} file descriptors" in told[0]
    assert f"prlimit --pid {agent.pid}" in told[0]
    assert processor < 1.5, processor  # it starts with 0.3 s of it


def test_it_goes_on_when_descriptors_come_free(host: Host, child: Child) -> None:
    agent = with_agent(host, child, LIMIT, LIMIT, 3)
    program = using_them_up(child)
    refused, _ = child("open").communicate(timeout=30)
    assert f"the agent, process {agent.pid}, has no file descriptor left" in refused
    assert "prlimit" in refused
    program.communicate(timeout=10)
    assert child("open").communicate(timeout=30)[0] == "opened\n"
    told, _ = ended(agent)
    assert len([each for each in told if "file descriptors" in each]) == 1


class Shortage:
    """A listening socket whose accept(2) fails so often."""

    def __init__(self, listener: socket.socket, error: int, times: int) -> None:
        self.listener, self.error, self.left, self.tried = listener, error, times, 0

    def fileno(self) -> int:
        return self.listener.fileno()

    def accept(self) -> tuple[socket.socket, object]:
        self.tried += 1
        if self.left:
            self.left -= 1
            raise OSError(self.error, "short")
        return self.listener.accept()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_pause_ends_after_its_time_or_with_a_descriptor(error: int) -> None:
    now, told = [10.0], []
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as poll:
        listener.setblocking(False)
        poll.register(listener, select.EPOLLIN)
        short = Shortage(listener, error, 2)
        acceptor = Acceptor(short, poll, lambda: now[0], told.append, 0.5)  # type: ignore[arg-type]
        with socket.create_connection(listener.getsockname()):
            assert poll.poll(1)
            assert acceptor.accept() is None
            assert acceptor.next_deadline() == 10.5
            acceptor.tick(10.4)
            assert not poll.poll(0)
            acceptor.tick(10.5)
            assert acceptor.next_deadline() is None
            assert poll.poll(1)
            assert acceptor.accept() is None
            acceptor.descriptor_freed()
            assert poll.poll(1)
            accepted = acceptor.accept()
            assert accepted is not None
            accepted.close()
    assert len(told) == 1


def test_a_fabric_s_server_pauses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FabricServer(f"short{os.getpid()}", accept_pause=0.2)
    acceptor = server.acceptor
    short = Shortage(acceptor._listener, errno.EMFILE, 1000)
    monkeypatch.setattr(acceptor, "_listener", short)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program:
        program.connect(short.listener.getsockname())
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            server.serve_once(server._time_left() or 0.1)
    server.close()
    assert 2 <= short.tried <= 4
