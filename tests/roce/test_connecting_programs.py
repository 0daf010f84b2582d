# SPDX-License-Identifier: Apache-2.0
"""Every program of tests/programs/connecting.py at two hosts, which exchange packets: without loss,
and with one packet in a hundred lost by the programs and by both agents.

tests/roce/test_connections.py has those programs that also meet Linux's own drivers.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.programs.connecting import PROGRAMS, Connecting, Ends
from tests.programs.pairs import LINE_BY_LINE, Pair, Running, Side, finish, wait_for_words
from tests.roce import networks
from tests.roce.networks import Host, Network
from tests.roce.test_connections import LISTEN_WITHIN, described, faulty_agents, until_in_time
from tests.support import end_group

pytestmark = [pytest.mark.debian, pytest.mark.timeout(120)]

# Nobody sends a lost datagram again: these programs wait for each of them, on every adapter.
DATAGRAMS = ("udaddy", "mckey")
Started = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def started() -> Iterator[Started]:
    """started(host, command, …): a program of a host, ended with the test."""
    running: list[subprocess.Popen[str]] = []

    def run(host: Host, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        running.append(host.start(*command, options=("--log", "counters"), env=env))
        return running[-1]

    yield run
    for process in running:
        end_group(process)


def is_listening(host: Host, server: int) -> bool:
    return server in described(host).get("listening_programs", [])


def wait_until_ready(run: Connecting, host: Host, server: subprocess.Popen[str]) -> None:
    """Until the server is ready, or has ended."""
    if run.tcp is not None:
        host.wait_listening(server, run.tcp)
        return
    if run.ready:
        wait_for_words(server, run.ready)
        return
    deadline = time.monotonic() + LISTEN_WITHIN
    while server.poll() is None and not is_listening(host, server.pid):
        assert time.monotonic() < deadline, "the server does not listen"
    time.sleep(run.settles)


def run_both(network: Network, started: Started, run: Connecting, env: dict[str, str]) -> Pair:
    """Run a server and its client. qperf's server tells the client a port before it listens there:
    a client that comes too soon is refused, as by any connection manager, and comes again."""
    for _ in range(5):
        pair = run_once(network, started, run, env)
        if "Event rejected" not in pair.client.output:
            break
    return pair


def run_once(network: Network, started: Started, run: Connecting, env: dict[str, str]) -> Pair:
    first, second = network.hosts
    before = LINE_BY_LINE if run.ready else ()
    server = started(first, [*before, *run.server], env | run.env)
    wait_until_ready(run, first, server)
    client = started(second, run.client, env | run.env)
    if run.ends:
        return Running(server, client).finish(60)
    side = finish("client", client, 60)
    if run.result:
        wait_for_equal(*run.result)
    assert server.poll() is None
    os.killpg(server.pid, signal.SIGTERM)
    return Pair(Side("server", 0, finish("server", server, 5).output), side)


def wait_for_equal(source: Path, copy: Path) -> None:
    deadline = time.monotonic() + 20
    while not copy.exists() or copy.read_bytes() != source.read_bytes():
        assert time.monotonic() < deadline, "the copy differs"
        time.sleep(0.05)


def assert_transferred(run: Connecting, pair: Pair) -> None:
    assert [side.status for side in pair.sides] == [0, 0], str(pair)
    assert re.search(run.said, pair.client.output), str(pair)
    assert re.search(run.served, pair.server.output), str(pair)


def counted(pair: Pair, name: str) -> int:
    """What both sides have counted; one that was killed has said nothing."""
    return sum(map(int, re.findall(rf"counted: {name} (\d+)", str(pair))))


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_hosts(network: Network, started: Started, tmp_path: Path, name: str) -> None:
    first, second = network.hosts
    run = PROGRAMS[name](Ends(first.ipv4, second.ipv4, tmp_path))
    pair = until_in_time(lambda: run_both(network, started, run, {}))
    assert_transferred(run, pair)
    assert counted(pair, "engine.packets_received") or name == "cmtime"  # it sends no data


@pytest.fixture(scope="module")
def lossy() -> Iterator[Network]:
    reason = networks.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Network(name="lossy") as network, faulty_agents(network.hosts, "drop 1%"):
        yield network


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_percent_of_loss(lossy: Network, started: Started, tmp_path: Path, name: str) -> None:
    first, second = lossy.hosts
    run = PROGRAMS[name](Ends(first.ipv4, second.ipv4, tmp_path))
    env = {} if name in DATAGRAMS else {"VERBENA_FAULT": f"seed 3; drop 1% {run.lost}"}
    pair = until_in_time(lambda: run_both(lossy, started, run, env))
    assert_transferred(run, pair)
    if run.many_packets:
        assert counted(pair, "engine.packets_resent"), str(pair)
