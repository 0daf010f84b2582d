# SPDX-License-Identifier: Apache-2.0
"""Multicast groups over two hosts: members on the sender's own and on the other one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.results import assert_measured
from tests.roce.networks import Host, Network
from tests.support import clean_environment

CHILD = str(Path(__file__).with_name("group_child.py"))
COUNT = 5


def start(host: Host, role: str, address: str, group: str, port: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        host.command(sys.executable, CHILD, role, address, group, str(COUNT)),
        env=clean_environment() | {"VERBENA_CARRIER": port},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("port", ["auto", "roce"])
@pytest.mark.parametrize("version", ["IPv4", "IPv6"])
def test_members_on_both_hosts_receive_each_datagram_once(
    network: Network, version: str, port: str
) -> None:
    here, there = network.hosts
    group = "239.66.1.9" if version == "IPv4" else "ff0e::66:9"

    def address(host: Host) -> str:
        return host.ipv4 if version == "IPv4" else host.ipv6

    members = [
        start(host, "receive", address(host), group, port) for host in (here, here, there, there)
    ]
    sender = start(here, "send", address(here), group, port)
    for process in (*members, sender):
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    assert sender.communicate("now\n", timeout=60) == ("", None)
    for member in members:
        output, _ = member.communicate(timeout=60)
        assert output.splitlines() == [f"number {n}" for n in range(COUNT)]
        assert member.returncode == 0


@pytest.mark.debian
def test_perftest_in_a_group(network: Network) -> None:
    """Its default group, ff01::…, is one that never leaves an interface."""
    group = ":".join(["255", "14", *["0"] * 13, "7"])
    words = ("ib_send_bw", "-c", "UD", "-g", "-M", group, "-s", "512", "-n", "500")
    pair = network.pair(*words, ipv6=True)
    assert_measured(pair, [512], 500)
