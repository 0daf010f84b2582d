# SPDX-License-Identifier: Apache-2.0
"""/dev/infiniband/umadN of RoCE ports: what Linux refuses there is refused, and agents of programs
exchange MADs, on one host and between two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.roce.networks import Host, Network
from tests.support import end_group

pytestmark = [pytest.mark.debian, pytest.mark.timeout(120)]

CHILD = str(Path(__file__).with_name("umad_child.py"))


def run(host: Host, *program: str) -> str:
    """What a program over Verbena says."""
    process = host.start(*program)
    output, _ = process.communicate(timeout=40)
    return output


@pytest.fixture
def server(network: Network) -> Iterator[Host]:
    """The first host, where a program answers."""
    process = network.hosts[0].start(sys.executable, CHILD, "serve")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield network.hosts[0]
    finally:
        end_group(process)


@pytest.mark.parametrize("place", [0, 1], ids=["one host", "two hosts"])
@pytest.mark.parametrize("version", ["ipv4", "ipv6"])
def test_a_mad_and_its_answer(network: Network, server: Host, place: int, version: str) -> None:
    gid = f"::ffff:{server.ipv4}" if version == "ipv4" else server.ipv6
    said = run(network.hosts[place], sys.executable, CHILD, "ask", gid)
    assert said == f"OK {gid} QUESTION\n"


@pytest.mark.parametrize("place", [0, 1], ids=["one host", "two hosts"])
def test_nobody_has_registered(network: Network, place: int) -> None:
    gid = f"::ffff:{network.hosts[0].ipv4}"
    assert run(network.hosts[place], sys.executable, CHILD, "ask", gid).startswith("ETIMEDOUT ")


def test_what_linux_refuses(network: Network) -> None:
    said = run(network.hosts[0], sys.executable, CHILD, "refused")
    assert said == "EPROTONOSUPPORT\nEINVAL\nEINVAL\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ibstat verbena0 1", "State: Active"),
        ("ls /sys/class/infiniband_mad", "abi_version\numad0\n"),
        ("perfquery", "client_register for mgmt 1 failed"),  # it wants QP 0, too
        ("ibping -c 1 1", "send failed; Invalid argument"),  # it has LIDs alone
    ],
)
def test_programs(
    network: Network, debian_program: Callable[[str], str], command: str, said: str
) -> None:
    """They end as with Linux's soft-RoCE."""
    name, *words = command.split()
    assert said in run(network.hosts[0], debian_program(name), *words)
