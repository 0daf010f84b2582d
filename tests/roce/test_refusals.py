# SPDX-License-Identifier: Apache-2.0
"""Hostile packets to live connections: refused, counted by name, logged; no more."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.programs.pairs import Pair
from tests.programs.results import assert_measured
from tests.roce.networks import Host, Network
from tests.support import clean_environment

CHILD = str(Path(__file__).with_name("hostile_child.py"))
STRANGER = "10.88.0.77"
COUNTED = re.compile(r"verbena: \S+: counted: (\w+)\.(\w+) (\d+)$", re.MULTILINE)
REFUSED = re.compile(r"^verbena: \S+: packets refused: (.*)$", re.MULTILINE)


def start(host: Host, *words: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        host.command(sys.executable, CHILD, *words),
        env=clean_environment() | env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_each_kind_is_refused_counted_and_logged(network: Network) -> None:
    child = start(network.hosts[0], "refusals", VERBENA_CARRIER="roce", VERBENA_LOG="debug")
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 0, output
    # A line a second at most, and one when the device is closed.
    logged = ", ".join(REFUSED.findall(output))
    for name in ("drop_source", "drop_pkey", "duplicate_requests", "refused_key"):
        assert f"{name} +1" in logged, output
    counted = {f"{part}.{name}": int(number) for part, name, number in COUNTED.findall(output)}
    for name in ("drop_source", "drop_pkey", "duplicate_requests", "refused_key"):
        assert counted[f"engine.{name}"] == 1, output
    assert counted["engine.nak_access_sent"] == 1
    assert not [name for name, number in counted.items() if number == 0]


@pytest.fixture
def stranger(network: Network) -> Host:
    """The second host, with another address than that which the connections have."""
    host = network.hosts[1]
    host.run("ip", "addr", "replace", f"{STRANGER}/24", "dev", "eth0")
    return host


@pytest.mark.debian
@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_lat"])
def test_perftest_ends_well_under_attack(network: Network, stranger: Host, program: str) -> None:
    attacker = start(stranger, "flood", STRANGER, network.hosts[0].ipv4)
    assert attacker.stdout
    assert attacker.stdout.readline() == "ready\n"
    # A longer timeout (1 s) than perftest's usual one: this machine may have much else to do.
    words = (program, "-n", "2000", "-u", "18")
    try:
        pair = network.pair(*words, server_env={"VERBENA_LOG": "counters"}, timeout=120)
    finally:
        thrown = int(attacker.communicate("enough\n", timeout=60)[0])
    server = replace(pair.server, output=re.sub("verbena: .*", "", pair.server.output))
    size = 65_536 if program == "ib_write_bw" else 2
    assert_measured(Pair(server, pair.client), [size], 2000)
    assert thrown > 50_000
    counted = {name: int(number) for _, name, number in COUNTED.findall(pair.server.output)}
    assert counted["received"] + counted["receive_bad_icrc"] > 1000, pair.server.output
    # For processes that there are none, and for the queue pair itself, the first of its process.
    assert counted.get("drop_absent", 0) + counted.get("drop_busy_owner", 0) > 0
    assert counted["drop_source"] > 0
    assert counted["receive_bad_length"] > 0
