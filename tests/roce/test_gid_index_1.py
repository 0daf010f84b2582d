# SPDX-License-Identifier: Apache-2.0
"""GID index 1 stands for no address: it names processes of this host, and no way to another."""

from __future__ import annotations

import pytest

from tests.programs.pairs import Running
from tests.roce.networks import Network

pytestmark = pytest.mark.debian


def pair_by(network: Network, first: str, second: str) -> Running:
    """A pingpong between the two hosts, each side with its GID index, and with reasons."""
    server, client = network.hosts
    words = ("ibv_rc_pingpong", "-m", "1024", "-p", str(network.PORT))
    env = {"VERBENA_LOG": "errors"}
    listener = server.start(*words, "-g", first, env=env)
    server.wait_listening(listener, network.PORT)
    return Running(listener, client.start(*words, "-g", second, server.ipv4, env=env))


def test_between_hosts_it_leads_nowhere_and_the_text_says_so(network: Network) -> None:
    """Both GIDs are that of index 1, so that each side looks for the other on its own host."""
    running = pair_by(network, "1", "1")
    output, _ = running.client.communicate(timeout=40)
    running.server.kill()  # it waits for a message, which nothing ends
    running.server.communicate()
    assert running.client.returncode == 1, output
    assert "transport retry count exceeded" in output
    assert "did not answer" in output
    assert "no process of this host has that number" in output
    assert "is it in another network namespace (GID index 1 never leaves the host" in output
    assert "use 0, or another of `verbena devices`)" in output


@pytest.mark.parametrize("first", [True, False], ids=["server", "client"])
def test_the_side_that_chose_it_alone_is_told(network: Network, first: bool) -> None:
    there = network.hosts[1 if first else 0]
    other = str(there.gid_index(there.ipv4))
    pair = pair_by(network, *(("1", other) if first else (other, "1"))).finish()
    side = pair.server if first else pair.client
    assert side.status == 1, str(pair)
    assert (
        "]: ibv_modify_qp failed: Network is unreachable; no route leads from GID index 1 to "
        f"the peer's GID ::ffff:{there.ipv4}: 0, 2 and up are addresses of this host's interfaces; "
        "choose one that reaches the peer\n"
    ) in side.output, str(pair)
