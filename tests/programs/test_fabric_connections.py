# SPDX-License-Identifier: Apache-2.0
"""Debian's programs that connect by librdmacm, at two hosts of a live fabric (`verbena fabric`).

Each runs in a subnet of Verbena's manager and in one of OpenSM's. The programs reach each other by
the addresses that the fabric gives its hosts.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Start
from tests.fabrics import opensm_tools
from tests.programs.pairs import LINE_BY_LINE, Pair, Running, wait_for_words
from tests.programs.test_opensm_live import running_opensm
from tests.subnet_process.support import RunningFabric, running_fabric
from tests.support import clean_environment, verbena_command
from verbena.agent.client import describe_agent

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
Connect = Callable[..., Pair]
SERVER, CLIENT = "h1", "h6"
HERE, THERE = "10.0.0.2", "10.0.0.7"  # the addresses of both
HERE6, THERE6 = "fd00::10.0.0.2", "fd00::10.0.0.7"
LISTEN_WITHIN = 20.0
PORT = 7471


@pytest.fixture(scope="module", params=["builtin", "opensm"])
def fabric(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningFabric]:
    folder = tmp_path_factory.mktemp("fabric")
    if request.param == "builtin":
        with running_fabric("clos2:4", folder) as made:
            yield made
        return
    tools = opensm_tools.environment()
    if isinstance(tools, str):
        pytest.skip(tools)
    with (
        running_fabric("clos2:4", folder, "--sm", "none") as made,
        running_opensm(made, "h0", tools, folder) as wait_for,
    ):
        wait_for("SUBNET UP")
        yield made


def described(fabric: RunningFabric) -> dict[str, dict[str, list[str]]]:
    """What the connection managers of the hosts do."""
    found = describe_agent(fabric.name)
    assert found is not None
    return dict(found["hosts"])


def wait_until(what: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LISTEN_WITHIN
    while running.poll() is None and not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def start(fabric: RunningFabric, verbena_start: Start, debian_program: Find) -> Start:
    """start(host, program, …, before=()): a program at a host, by a command before it."""

    def run(
        host: str, program: str, *words: str, before: tuple[str, ...] = (), **how: object
    ) -> subprocess.Popen[str]:
        at = ("--fabric", fabric.name, "--host", host, "--log", "errors")
        return verbena_start(*before, debian_program(program), *words, options=at, **how)

    return run


@pytest.fixture
def connect(fabric: RunningFabric, start: Start) -> Connect:
    """connect(server, client, port): both sides, the client as soon as the server listens."""

    def run(
        server: list[str], client: list[str], port: int = PORT, timeout: float = 40, **how: object
    ) -> Pair:
        listening = start(SERVER, *server, **how)

        def listens() -> bool:
            found = described(fabric).get(SERVER, {}).get("listening", [])
            return any(each.endswith((f":{port}", f"{port:04x}")) for each in found)

        wait_until(listens, listening)
        return Running(listening, start(CLIENT, *client, **how)).finish(timeout)

    return run


def assert_both_succeed(pair: Pair) -> None:
    assert [side.status for side in pair.sides] == [0, 0], str(pair)


@pytest.mark.parametrize(
    ("address", "to"), [(HERE, HERE), ("0.0.0.0", HERE), (HERE6, HERE6), ("::", HERE6)]
)
def test_rping(connect: Connect, address: str, to: str) -> None:
    both = ["rping", "-p", str(PORT), "-C", "20", "-v"]
    pair = connect([*both, "-s", "-a", address], [*both, "-c", "-a", to])
    assert_both_succeed(pair)
    assert pair.server.output.count("server ping data: rdma-ping-") == 20
    assert pair.client.output.count("ping data: rdma-ping-") == 20


def test_a_pair_waits_for_a_listener_of_the_fabric(
    fabric: RunningFabric, debian_program: Find
) -> None:
    """`verbena pair` starts the client when the server listens by the fabric's rdma_cm."""
    rping = debian_program("rping")
    hosts = ["--fabric", fabric.name, "--host", f"{SERVER},{CLIENT}"]
    programs = ["--", rping, "-s", "-C", "2", "--", rping, "-c", "-a", HERE, "-C", "2", "-v"]
    done = subprocess.run(
        verbena_command("pair", *hosts, *programs),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ping data: rdma-ping-1" in done.stdout


def test_rping_within_a_host(fabric: RunningFabric, start: Start) -> None:
    both = ["rping", "-p", str(PORT), "-C", "2", "-a", THERE]
    server = start(CLIENT, *both, "-s")
    wait_until(lambda: bool(described(fabric).get(CLIENT, {}).get("listening")), server)
    assert_both_succeed(Running(server, start(CLIENT, *both, "-c")).finish())


@pytest.mark.parametrize("connections", [1, 50])
def test_ucmatose(connect: Connect, connections: int) -> None:
    both = ["ucmatose", "-p", str(PORT), "-c", str(connections), "-C", "10", "-S", "1000"]
    pair = connect([*both, "-b", HERE], [*both, "-b", THERE, "-s", HERE])
    assert_both_succeed(pair)
    for side in pair.sides:
        assert "data transfers complete" in side.output
        assert "return status 0" in side.output


def test_ucmatose_by_gids(fabric: RunningFabric, connect: Connect) -> None:
    """AF_IB's addresses are GIDs."""
    server, client = (
        fabric.run(host, "cat", "/sys/class/infiniband/verbena0/ports/1/gids/0").stdout.strip()
        for host in (SERVER, CLIENT)
    )
    both = ["ucmatose", "-p", str(PORT), "-c", "2", "-f", "gid", "-P", "ib"]
    pair = connect([*both, "-b", server], [*both, "-b", client, "-s", server])
    assert_both_succeed(pair)


@pytest.mark.parametrize(("at", "to"), [("0.0.0.0", HERE), (HERE6, HERE6)])
def test_udaddy(connect: Connect, at: str, to: str) -> None:
    both = ["udaddy", "-c", "5"]
    pair = connect([*both, "-b", at], [*both, "-s", to], 7174)
    assert_both_succeed(pair)
    assert all("data transfers complete" in side.output for side in pair.sides)


def test_rdma_client_and_server(connect: Connect) -> None:
    port = ["-p", str(PORT)]
    pair = connect(["rdma_server", *port], ["rdma_client", *port, "-s", HERE])
    assert_both_succeed(pair)
    assert all(side.output.rstrip().endswith("end 0") for side in pair.sides)


@pytest.mark.parametrize("program", ["rstream", "riostream"])
def test_streams(connect: Connect, program: str) -> None:
    both = [program, "-p", str(PORT), "-S", "65536", "-C", "100"]
    pair = connect(both, [*both, "-s", HERE])
    assert_both_succeed(pair)
    assert re.search(r"^custom +64k +100 +1 +12m ", pair.client.output, re.MULTILINE), str(pair)


def test_cmtime(fabric: RunningFabric, start: Start) -> None:
    words = ["cmtime", "-p", str(PORT)]
    server = start(SERVER, *words)
    wait_until(lambda: bool(described(fabric).get(SERVER, {}).get("listening")), server)
    client = start(CLIENT, *words, "-s", HERE, "-c", "100")
    output, _ = client.communicate(timeout=60)
    assert client.returncode == 0, output
    assert re.search(r"^connect *: +[\d.]+", output, re.MULTILINE), output
    assert server.poll() is None  # it goes on for ever


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_lat", "ib_send_bw", "ib_read_bw"])
def test_perftest(connect: Connect, fast_clock: dict[str, str], program: str) -> None:
    both = [program, "-F", "-R", "-n", "100", "-p", str(PORT)]
    for _ in range(3):  # it closes its first listener, and opens a second one
        pair = connect(both, [*both, HERE], env=fast_clock)
        if "RDMA_CM_EVENT_REJECTED; error: 8." not in pair.client.output:
            break
    assert_both_succeed(pair)
    assert "rdma_cm QPs" in pair.client.output


@pytest.mark.parametrize(
    ("group", "at", "of"), [("239.88.1.1", HERE, THERE), ("ff05::88", HERE6, THERE6)]
)
def test_mckey(fabric: RunningFabric, start: Start, group: str, at: str, of: str) -> None:
    both = ["mckey", "-m", group, "-C", "10"]
    receiver = start(SERVER, *both, "-b", at, before=LINE_BY_LINE)
    wait_for_words(receiver, "receiving data transfers")
    assert "joined" in "".join(described(fabric).get(SERVER, {}).get("groups", []))
    pair = Running(receiver, start(CLIENT, *both, "-b", of, "-s")).finish()
    assert_both_succeed(pair)
    assert "data transfers complete" in pair.server.output
