# SPDX-License-Identifier: Apache-2.0
"""Python programs run unchanged over Linux' soft-RoCE driver, by the system's rdma-core.

Everything above ``verbena.verbs`` and ``verbena.cm``: in two guests with
``VERBENA_LIBRARY=system``, and in one of them with a process beside it that has Verbena's own
device.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.test_examples import parts, program
from tests.hardware.python_guest import (
    HERE,
    boot_python_guests,
    ended,
    run_beside,
    run_in_guest,
    serving_beside,
    serving_in_guest,
    start_in_guest,
)
from tests.roce import linux_guest
from tests.roce.linux_guest import Guest, Lab
from tests.support import ROOT, verbena_command

pytestmark = [pytest.mark.debian, pytest.mark.timeout(180)]
DEVICE, PEERS, RPC = (HERE / f"{name}_program.py" for name in ("device", "peers", "rpc"))
# The examples of docs/examples.md that are a server and a client, and the server's port.
EXAMPLES = {
    "first_write": 18515,
    "key_value": 18515,
    "parallel_download": 7471,
    "work_queue": 7174,
    "rpc_service": 7174,
    "remote_disk": 4420,
}
PEERS_ASKED = """messages are right
a slice: [[3, 4, 5], [6, 7, 8]]
atomics: 0 0
a large array: 917504
a window: [[1, 1, 1], [1, 1, 1]]
the window has ended
"""
PEERS_SERVED = """listening
shared: [[0, 1, 2], [3, 4, 5], [6, 7, 8], [5, 7, 0]] 8589737992
lent: [[0, 0, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]
the end: the peer closed it
"""
RPC_CALLED = """arguments are right
streams: 4950 [10, 262144, 5000]
together: 1225
cancelled: True
ValueError: a failure
"""
RPC_SERVED = "listening\nslow was cancelled\n"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    reason = linux_guest.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Lab() as made:
        boot_python_guests(made, 2, 3)
        # A program's address is looked for in two seconds, in which a busy guest may not answer.
        made.guests[1].run(f"ping -c 1 -w 30 {made.guests[0].ipv4}")
        yield made


@pytest.fixture
def first(lab: Lab) -> Guest:
    return lab.guests[0]


@pytest.fixture
def second(lab: Lab) -> Guest:
    return lab.guests[1]


def test_the_device_and_the_library_are_the_system_s(first: Guest) -> None:
    """And a program is told what the driver lacks."""
    devices, libraries, flush, loopback = run_in_guest(first, DEVICE).splitlines()
    assert devices == "['rxe0']"
    assert "/usr/lib/x86_64-linux-gnu/libibverbs.so.1" in libraries
    assert "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-" in libraries
    assert "verbena" not in libraries
    assert "the device does not know an access flag (few know those of FLUSH)" in flush
    assert loopback.startswith("Unreachable ")
    assert "127.0.0.1:7300: The address's interface has no RDMA device" in loopback


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_what_its_page_shows(first: Guest, second: Guest, name: str) -> None:
    path = ROOT / f"examples/{name}.py"
    (shown,) = (said for _, said, source in parts() if program(source) == path)
    with serving_in_guest(first, EXAMPLES[name], path) as server:
        client = run_in_guest(second, path, first.ipv4)
        if "server: " in shown.text:
            server.ended()
    said = [*client.splitlines(), *(f"server: {line}" for line in server.said.splitlines())]
    assert sorted(said) == sorted(shown.text.splitlines())


def test_connections_to_peers(first: Guest, second: Guest) -> None:
    with serving_in_guest(first, 7300, PEERS) as server:
        assert run_in_guest(second, PEERS, first.ipv4) == PEERS_ASKED
        assert server.ended() == PEERS_SERVED


def test_calls(first: Guest, second: Guest) -> None:
    with serving_in_guest(first, 7301, RPC) as server:
        assert run_in_guest(second, RPC, first.ipv4) == RPC_CALLED
    assert server.said == RPC_SERVED


def test_the_command_lists_a_disk(first: Guest, second: Guest) -> None:
    with serving_in_guest(first, 4420, ROOT / "examples/remote_disk.py"):
        said = run_in_guest(second, *verbena_command("disk", "list", first.ipv4))
    assert said == f"nqn.2026-01.org.example:remote at {first.ipv4}, port 4420\n"


def test_ranks(first: Guest, second: Guest) -> None:
    path = ROOT / "examples/data_parallel.py"
    ranks = [
        {"VERBENA_RANK": str(rank), "VERBENA_SIZE": "2", "VERBENA_ADDRESS": f"{first.ipv4}:7174"}
        for rank in range(2)
    ]
    other = start_in_guest(second, path, **ranks[1])
    assert run_in_guest(first, path, **ranks[0]) == "largest error below 1e-6: True\n"
    assert ended(other) == "largest error below 1e-6: True\n"


@pytest.mark.parametrize(
    ("port", "program", "asked"), [(7300, PEERS, PEERS_ASKED), (7301, RPC, RPC_CALLED)]
)
class TestVerbenasOwnDeviceBeside:
    def test_asks(self, lab: Lab, first: Guest, port: int, program: Path, asked: str) -> None:
        with serving_in_guest(first, port, program):
            assert run_beside(lab, program, first.ipv4) == asked

    def test_serves(self, lab: Lab, first: Guest, port: int, program: Path, asked: str) -> None:
        with serving_beside(lab, program):
            assert run_in_guest(first, program, lab.ipv4) == asked
