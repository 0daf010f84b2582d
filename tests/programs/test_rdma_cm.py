# SPDX-License-Identifier: Apache-2.0
"""Debian's programs that connect by librdmacm, between two processes of one host.

The agent that manages their connections is started by the first of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.conftest import Start
from tests.programs.pairs import HOST, LINE_BY_LINE, Pair, Running, free_port, wait_for_words
from verbena.agent.client import describe_agent

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
Connect = Callable[..., Pair]
LISTEN_WITHIN = 20.0
UDADDY_PORT = 7174  # it takes no other
# The server of perftest closes its first listener and opens a second one while the client sleeps
# for a second; on a busy host the client may be first.
TOO_EARLY = "Event: RDMA_CM_EVENT_REJECTED; error: 8."


def listeners() -> list[str]:
    """What programs listen for by librdmacm, as "TCP 0.0.0.0:7174"."""
    described = describe_agent()
    return [] if described is None else list(described["listening"])


def wait_for_listener(start: Callable[[], bool], port: int) -> None:
    """Until something listens on a port of librdmacm, or the process has ended."""
    deadline = time.monotonic() + LISTEN_WITHIN
    while start() and not any(each.endswith(f":{port}") for each in listeners()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing listens on port {port}: {listeners()}")
        time.sleep(0.01)


@pytest.fixture
def connect(verbena_start: Start, debian_program: Find) -> Connect:
    """connect(server, client, port): both sides, the client as soon as the server listens."""

    def run(server: list[str], client: list[str], port: int, timeout: float = 40) -> Pair:
        listening = verbena_start(debian_program(server[0]), *server[1:])
        wait_for_listener(lambda: listening.poll() is None, port)
        connecting = verbena_start(debian_program(client[0]), *client[1:])
        return Running(listening, connecting).finish(timeout)

    return run


def assert_both_succeed(pair: Pair) -> None:
    assert [side.status for side in pair.sides] == [0, 0], str(pair)


def test_rping(connect: Connect) -> None:
    port = free_port()
    both = ["rping", "-p", str(port), "-a", HOST, "-C", "20", "-v"]
    pair = connect([*both, "-s"], [*both, "-c"], port)
    assert_both_succeed(pair)
    assert pair.server.output.count("server ping data: rdma-ping-") == 20
    assert pair.client.output.count("ping data: rdma-ping-") == 20


@pytest.mark.parametrize("connections", [1, 50])
def test_ucmatose(connect: Connect, connections: int) -> None:
    port = free_port()
    both = ["ucmatose", "-p", str(port), "-c", str(connections), "-C", "10", "-S", "1000"]
    pair = connect(both, [*both, "-s", HOST], port)
    assert_both_succeed(pair)
    for side in pair.sides:
        assert "data transfers complete" in side.output
        assert "return status 0" in side.output


def test_udaddy(connect: Connect) -> None:
    both = ["udaddy", "-c", "5"]
    pair = connect(both, [*both, "-s", HOST], UDADDY_PORT)
    assert_both_succeed(pair)
    assert all("data transfers complete" in side.output for side in pair.sides)


def test_rdma_client_and_server(connect: Connect) -> None:
    port = free_port()
    pair = connect(
        ["rdma_server", "-p", str(port)], ["rdma_client", "-p", str(port), "-s", HOST], port
    )
    assert_both_succeed(pair)
    assert all(side.output.rstrip().endswith("end 0") for side in pair.sides)


def test_cmtime(verbena_start: Start, debian_program: Find) -> None:
    port = free_port()
    server = verbena_start(debian_program("cmtime"), "-p", str(port))
    wait_for_listener(lambda: server.poll() is None, port)
    client = verbena_start(debian_program("cmtime"), "-p", str(port), "-s", HOST, "-c", "200")
    output, _ = client.communicate(timeout=60)
    assert client.returncode == 0, output
    steps = re.findall(r"^(\w+ ?\w+) *: +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", output, re.MULTILINE)
    assert "connect" in " ".join(steps), output
    assert server.poll() is None  # it goes on for ever


@pytest.mark.parametrize("program", ["rstream", "riostream"])
def test_streams(connect: Connect, program: str) -> None:
    port = free_port()
    both = [program, "-p", str(port), "-S", "65536", "-C", "100"]
    pair = connect(both, [*both, "-s", HOST], port)
    assert_both_succeed(pair)
    assert re.search(r"^custom +64k +100 +1 +12m ", pair.client.output, re.MULTILINE), str(pair)


def test_mckey(verbena_start: Start, debian_program: Find) -> None:
    both = [debian_program("mckey"), "-m", "239.88.1.1", "-b", HOST, "-C", "10"]
    receiver = verbena_start(*LINE_BY_LINE, *both)
    wait_for_words(receiver, "receiving data transfers")
    assert "joined" in "".join(groups())
    pair = Running(receiver, verbena_start(*both, "-s")).finish(40)
    assert_both_succeed(pair)
    assert "data transfers complete" in pair.server.output


def groups() -> list[str]:
    described = describe_agent()
    return [] if described is None else list(described["groups"])


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_lat", "ib_read_bw"])
def test_perftest(connect: Connect, fast_clock: dict[str, str], program: str) -> None:
    for _ in range(3):
        port = free_port()
        both = [program, "-F", "-R", "-n", "100", "-p", str(port)]
        pair = connect(both, [*both, HOST], port)
        if TOO_EARLY not in pair.client.output:
            break
    assert_both_succeed(pair)
    assert "rdma_cm QPs" in pair.client.output
