# SPDX-License-Identifier: Apache-2.0
"""Link-local IPv6 addresses: two links on which the same peer address means two hosts.

What Linux does was tried with rping and soft-RoCE of Linux 6.1: an address to bind, and one to
connect from, needs a scope id; a destination may lack it, and the routes choose the interface.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.agent.conftest import Start, described, listening
from tests.roce.networks import Host

pytestmark = pytest.mark.debian
LINKS = ("v0", "v1")
PEER = "fe80::7"


@pytest.fixture
def peers(host: Host) -> Iterator[tuple[Host, Host]]:
    """Two hosts, one on each link of `host`; both have the address PEER."""
    made = tuple(Host(f"vb{os.getpid()}peer{link}", PEER, PEER) for link in LINKS)
    for link, own, peer in zip(LINKS, ("fe80::1", "fe80::2"), made, strict=True):
        subprocess.run(["ip", "netns", "add", peer.namespace], check=True)
        end = ("type", "veth", "peer", "name", "v", "netns", peer.namespace)
        host.run("ip", "link", "add", link, *end)
        for at, name, address in ((host, link, own), (peer, "v", PEER)):
            at.run("ip", "link", "set", "lo", "up")
            at.run("ip", "link", "set", name, "up")
            at.run("ip", "addr", "add", f"{address}/64", "dev", name, "nodad")
    yield made[0], made[1]
    for peer in made:
        if agent := described(peer):
            os.kill(agent["pid"], signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", peer.namespace], check=True)


def rping(*words: str) -> tuple[str, ...]:
    return ("rping", *words, "-p", "7001", "-C", "3", "-v")


def test_the_scope_chooses_the_link(host: Host, start: Start, peers: tuple[Host, Host]) -> None:
    """Without it the routes do, which lead to the first link for both."""
    servers = [peer.start(*rping("-s", "-a", f"{PEER}%v")) for peer in peers]
    try:
        for peer in peers:
            listening(peer)
        for at in (1, 0):
            client = start(*rping("-c", "-a", f"{PEER}%{LINKS[at]}"))
            output, _ = client.communicate(timeout=30)
            assert client.returncode == 0, output
            output, _ = servers[at].communicate(timeout=30)
            assert "rdma-ping-2" in output
            assert servers[0].poll() is None or at == 0
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def test_what_linux_says(host: Host, start: Start, peers: tuple[Host, Host]) -> None:
    no_scope = "append %interface"
    cases = (
        (("-s", "-a", "fe80::1"), "rdma_bind_addr: Invalid argument", no_scope),
        (("-c", "-a", PEER, "-I", "fe80::1"), "rdma_resolve_addr: Invalid argument", no_scope),
        (("-s", "-a", "fe80::1%v1"), "rdma_bind_addr: ", "No interface has the address"),
        (
            ("-c", "-a", "fe80::77"),
            "RDMA_CM_EVENT_ADDR_ERROR, error -110",
            "RDMA_CM_EVENT_ADDR_ERROR, status -110 (ETIMEDOUT): Nobody answers",
            no_scope,
        ),
        (
            ("-c", "-a", "2001:db8::1"),
            "rdma_resolve_addr: Network is unreachable",
            "No route leads to the address; check it",
        ),
    )
    programs = [start(*rping(*words), env={"VERBENA_LOG": "errors"}) for words, *_ in cases]
    for program, (words, *says) in zip(programs, cases, strict=True):
        output, _ = program.communicate(timeout=30)
        assert all(each in output for each in says), (words, output)
