# SPDX-License-Identifier: Apache-2.0
"""Processes that connect by verbena.cm: to each other, and to Debian's programs of librdmacm.

They are in a network namespace of their own, whose agent may be killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_lifecycle import described
from tests.roce import networks
from tests.roce.networks import Host, Network
from tests.support import clean_environment, end_group, verbena_command

CHILD = str(Path(__file__).with_name("child.py"))
HOST = "127.0.0.1"
PORT = 7471
KERNEL = {"CM_TEST_DEVICE": "kernel"}


class Started:
    """Processes on a host, which end with the test."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._processes: list[subprocess.Popen[str]] = []

    def begin(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        """A program, with settings in its environment."""
        self._processes.append(
            subprocess.Popen(
                self.host.command(*words),
                env=clean_environment() | settings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return self._processes[-1]

    def child(self, what: str, **settings: str) -> subprocess.Popen[str]:
        return self.begin(sys.executable, CHILD, what, str(PORT), **settings)

    def run(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        """A program under `verbena run`."""
        return self.begin(*verbena_command("run", "--", *words), **settings)

    def child_under_run(self, what: str, **settings: str) -> subprocess.Popen[str]:
        return self.run(sys.executable, CHILD, what, str(PORT), **settings)

    def end(self) -> None:
        for each in self._processes:
            end_group(each)


@pytest.fixture
def here() -> Iterator[Started]:
    reason = networks.reason_not_to()
    if reason:
        pytest.skip(reason)
    host = Host(f"vb{os.getpid()}pycm", HOST, "::1")
    subprocess.run(["ip", "netns", "add", host.namespace], check=True)
    host.run("ip", "link", "set", "lo", "up")
    started = Started(host)
    yield started
    started.end()
    agent = described(host)
    if agent is not None:
        os.kill(agent["pid"], signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", host.namespace], check=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def rest(process: subprocess.Popen[str], status: int = 0) -> str:
    output, _ = process.communicate(timeout=40)
    assert process.returncode == status, output
    return output


def wait_for_listener(host: Host, process: subprocess.Popen[str], port: int = PORT) -> None:
    deadline = time.monotonic() + 20
    while process.poll() is None:
        agent = described(host) or {"listening": []}
        if any(each.endswith(f":{port}") for each in agent["listening"]):
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- two processes -------------------------------------------------------------------------------


def test_two_processes(here: Started) -> None:
    server = here.child("serve")
    assert line(server) == f"listening {PORT}"
    for _ in range(2):
        assert rest(here.child("connect")) == "connected served\nexchanged 2\n"
        assert line(server) == "connected child"
        assert line(server) == "closed: the peer disconnected, or ended"


@pytest.mark.parametrize(
    ("serves", "connects"), [("run", "run"), ("run", "plain"), ("plain", "run")]
)
def test_the_kernel_s_device(here: Started, serves: str, connects: str) -> None:
    """Under `verbena run` the device is a file, as on a machine with an adapter."""
    kinds: dict[str, Any] = {"run": here.child_under_run, "plain": here.child}
    settings = {"run": KERNEL, "plain": {}}
    server = kinds[serves]("serve", **settings[serves])
    assert line(server) == f"listening {PORT}"
    client = kinds[connects]("connect", **settings[connects])
    assert rest(client) == "connected served\nexchanged 2\n"
    assert line(server) == "connected child"
    assert line(server) == "closed: the peer disconnected, or ended"


def test_infiniband_ports(here: Started) -> None:
    """The agent is told that the ports have LIDs."""
    server = here.child("serve", VERBENA_LINK_LAYER="infiniband")
    line(server)
    client = here.child("connect", VERBENA_LINK_LAYER="infiniband")
    assert rest(client) == "connected served\nexchanged 2\n"


@pytest.mark.parametrize("killed", ["server", "client"])
def test_the_peer_is_killed(here: Started, killed: str) -> None:
    server = here.child("idle")
    line(server)
    client = here.child("stay")
    assert (line(server), line(client)) == ("connected", "connected")
    victim, other = (server, client) if killed == "server" else (client, server)
    os.killpg(victim.pid, signal.SIGKILL)
    assert line(other) == "closed: the peer disconnected, or ended"
    if killed == "server":
        assert line(other) == "QP ERR"
        assert line(other) == "again: NoListener"


def test_the_agent_is_killed(here: Started) -> None:
    """Both sides are told, the queue pairs stay, and the next connection has another agent."""
    server = here.child("idle")
    line(server)
    client = here.child("stay")
    assert (line(server), line(client)) == ("connected", "connected")
    agent = described(here.host)
    assert agent is not None
    os.kill(agent["pid"], signal.SIGKILL)
    ended = "closed: the agent ended, so that nobody tells when the peer disconnects"
    assert line(client) == ended
    assert line(client) == "QP RTS"
    assert line(client) == "again: NoListener"
    assert line(server) == ended
    assert line(server).startswith("listener: [Errno 5] the agent, which manages connections, has")
    rest(client)
    rest(server)


def test_the_agent_is_killed_while_a_connection_is_made(here: Started) -> None:
    listener = here.child("listen")
    line(listener)
    client = here.child("ask")
    deadline = time.monotonic() + 20
    while (agent := described(here.host)) is None or agent["identifiers"] < 3:
        assert time.monotonic() < deadline
    os.kill(agent["pid"], signal.SIGKILL)
    assert rest(client).startswith("failed: ManagerEnded")


# ---- programs in C -------------------------------------------------------------------------------


@pytest.mark.debian
def test_rdma_client(here: Started) -> None:
    server = here.child("serve")
    line(server)
    client = here.run("rdma_client", "-s", HOST, "-p", str(PORT))
    assert rest(client).rstrip().endswith("end 0")
    assert line(server).startswith("connected")
    assert line(server) == "closed: the peer disconnected, or ended"


@pytest.mark.debian
def test_rdma_server(here: Started) -> None:
    server = here.run("rdma_server", "-p", str(PORT))
    wait_for_listener(here.host, server)
    assert "exchanged 2" in rest(here.child("connect"))
    assert rest(server).rstrip().endswith("end 0")


MESSAGES = {"CM_TEST_BYTES": "100", "CM_TEST_COUNT": "10"}


@pytest.mark.debian
@pytest.mark.parametrize("device", ["agent", "kernel"])
def test_ucmatose_serves(here: Started, device: str) -> None:
    server = here.run("ucmatose", "-p", str(PORT))
    wait_for_listener(here.host, server)
    settings = MESSAGES | {"CM_TEST_WAITS": "yes"}
    if device == "kernel":
        client = here.child_under_run("connect", **settings, **KERNEL)
    else:
        client = here.child("connect", **settings)
    assert "exchanged 20\nclosed: the peer disconnected, or ended" in rest(client)
    assert "return status 0" in rest(server)


@pytest.mark.debian
def test_ucmatose_connects(here: Started) -> None:
    server = here.child("serve", **MESSAGES, CM_TEST_CLOSES="yes")
    line(server)
    client = here.run("ucmatose", "-p", str(PORT), "-s", HOST)
    output = rest(client)
    assert "data transfers complete" in output
    assert "return status 0" in output


# ---- two hosts -----------------------------------------------------------------------------------


@pytest.fixture
def lossy() -> Iterator[tuple[Started, Started]]:
    """Two hosts whose agents lose a fifth of their packets."""
    reason = networks.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Network(name="pycm") as network:
        both = Started(network.hosts[0]), Started(network.hosts[1])
        for number, each in enumerate(both):
            agent = each.begin(*verbena_command("agent", "--fault", f"seed {number}; drop 20%"))
            assert "ready" in line(agent)
        yield both
        for each in both:
            each.end()


@pytest.mark.parametrize("version", ["ipv4", "ipv6"])
def test_a_lossy_network(lossy: tuple[Started, Started], version: str) -> None:
    serving, connecting = lossy
    server = serving.child("serve")
    assert "listening" in line(server)
    address = getattr(serving.host, version)
    for _ in range(3):
        output = rest(connecting.child("connect", CM_TEST_HOST=address))
        assert output == "connected served\nexchanged 2\n"
        assert server.poll() is None, server.communicate()[0]
    server.kill()
    server.wait()  # the next one has its port


def test_nobody_has_the_address(lossy: tuple[Started, Started]) -> None:
    client = lossy[0].child("ask", CM_TEST_HOST="10.88.0.77")
    assert "ConnectTimeout" in (output := rest(client))
    assert "nobody on the network answers for the address" in output.lower()
