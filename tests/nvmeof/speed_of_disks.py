# SPDX-License-Identifier: Apache-2.0
"""How fast a disk in memory is, beside nbdkit's memory plugin over TCP, as fio reads that.

Both are measured in turn on the same machine, and the best of some rounds of each is compared,
since other programs may disturb a round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import debian_packages
from tests.cli.test_disk import Network
from tests.nvmeof.conftest import HOST, MIB, NQN, ChildTarget
from tests.support import own_network

pytestmark = [
    pytest.mark.debian,
    pytest.mark.not_sanitized("a build with sanitizers has another speed"),
]
ROUNDS = 3
SECONDS = 1.0
NBD_PORT = 10_809
LOAD = """
import asyncio, sys
from verbena import nvmeof
from verbena.nvmeof.load import Load, Pattern, measure
host, port, nqn, pattern, size, depth, seconds = sys.argv[1:]
async def main():
    async with await nvmeof.connect(host, nqn, int(port)) as controller:
        load = Load(Pattern(pattern), int(size), int(depth), float(seconds))
        print((await measure(controller.disks[1], load)).rate)
asyncio.run(main())
"""
CASES = [("randread", 4096, 32, 1.5), ("read", MIB, 8, 2.0)]


@pytest.fixture(scope="module")
def enter() -> Iterator[list[str]]:
    """What to put before the commands, so that they are in a network of their own."""
    if not own_network():
        pytest.skip("the agent may have other users here; run the tests as root")
    network = Network()
    yield network.enter
    network.close()


@pytest.fixture(scope="module")
def nbdkit(enter: list[str]) -> Iterator[None]:
    """nbdkit with a disk in memory, which was written once."""
    words = debian_packages.command("nbdkit", alone=True)
    plugin = "memory"
    if words[0] == "sh":
        root = Path(words[-1]).parents[1]
        (found,) = root.glob("lib/*/nbdkit/plugins/nbdkit-memory-plugin.so")
        plugin = str(found)
    process = subprocess.Popen(
        [*enter, *words, "-f", "-i", HOST, "-p", str(NBD_PORT), plugin, "256M"]
    )
    time.sleep(0.5)
    assert process.poll() is None
    peer_rate(enter, "write", MIB, 8)
    yield
    process.terminate()
    process.wait()


def peer_rate(enter: list[str], pattern: str, size: int, depth: int) -> float:
    """Requests in a second, by fio."""
    done = subprocess.run(
        [
            *(*enter, *debian_packages.command("fio"), "--name=r", "--ioengine=nbd"),
            *(f"--uri=nbd://{HOST}:{NBD_PORT}", f"--rw={pattern}", f"--bs={size}"),
            *("--size=256M", f"--iodepth={depth}", "--time_based", f"--runtime={SECONDS}"),
            "--output-format=json",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    return float(max(job["read"]["iops"], job["write"]["iops"]))


def own_rate(enter: list[str], port: int, pattern: str, size: int, depth: int) -> float:
    """Commands in a second, between two processes."""
    words = (HOST, str(port), NQN, pattern, str(size), str(depth), str(SECONDS))
    done = subprocess.run(
        [*enter, sys.executable, "-c", LOAD, *words],
        env=os.environ | {"VERBENA_CARRIER": "direct"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize(("pattern", "size", "depth", "factor"), CASES, ids=["4KiB", "1MiB"])
def test_it_is_faster_than_nbdkit(
    enter: list[str], nbdkit: None, pattern: str, size: int, depth: int, factor: float
) -> None:
    with ChildTarget(256 * MIB, carrier="direct", enter=enter) as target:
        own_rate(enter, target.port, "write", MIB, 8)
        own, peer = [], []
        for _ in range(ROUNDS):
            peer.append(peer_rate(enter, pattern, size, depth))
            own.append(own_rate(enter, target.port, pattern, size, depth))
    said = f"{pattern} {size}: verbena {sorted(map(round, own))}, nbdkit {sorted(map(round, peer))}"
    print(said)
    assert max(own) >= factor * max(peer), said
