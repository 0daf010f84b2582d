# SPDX-License-Identifier: Apache-2.0
"""Programs of librdmacm at hosts of a live fabric while one OpenSM takes over from another."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fabrics import opensm_tools
from tests.programs.test_opensm_live import running_opensm
from tests.subnet_process.support import RunningFabric, running_fabric
from tests.support import end_group
from verbena.agent.client import describe_agent

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
SERVER, CLIENT = "h1", "h6"
HERE, THERE = "10.0.0.2", "10.0.0.7"
GROUP = "239.88.1.1"
WITHIN = 30.0


@pytest.fixture(scope="module")
def tools() -> dict[str, str]:
    found = opensm_tools.environment()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def start(debian_program: Find) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(fabric: RunningFabric, host: str, name: str, *words: str) -> subprocess.Popen[str]:
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(fabric.start(host, "timeout", "60", debian_program(name), *words, **both))
        return started[-1]

    yield run
    for process in started:
        end_group(process)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def of_host(fabric: RunningFabric, what: str) -> str:
    """What the connection manager of the server's host does, by name."""
    found = describe_agent(fabric.name)
    assert found is not None
    return "".join(found["hosts"].get(SERVER, {}).get(what, []))


def members(fabric: RunningFabric, tools: dict[str, str]) -> bool:
    """Whether subnet administration knows the group."""
    return "ff12:4001:ffff::f58:101" in fabric.run("h2", "saquery", "-m", env=tools).stdout


def test_a_manager_that_starts_again_asks_for_registrations(
    tools: dict[str, str], tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """OpenSM has lost what it knew: hosts join their groups again, and programs are told.

    A program that has entered a service (ServiceRecord) or subscribed to notices does so again
    itself, as on Linux, when it sees the event.
    """
    with running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric:
        with running_opensm(fabric, "h0", tools, tmp_path) as first:
            first("SUBNET UP")
            start(fabric, SERVER, "mckey", "-m", GROUP, "-C", "1", "-b", HERE)
            watch = start(fabric, "h3", "ibv_asyncwatch")
            assert watch.stdout is not None
            assert "async event FD" in watch.stdout.readline()
            wait_until(lambda: members(fabric, tools))
        with running_opensm(fabric, "h0", tools, tmp_path) as second:
            second("SUBNET UP")
            assert any("(17)" in line for line in watch.stdout)  # IBV_EVENT_CLIENT_REREGISTER
            wait_until(lambda: members(fabric, tools))


def test_a_standby_takes_over(
    tools: dict[str, str],
    tmp_path: Path,
    debian_program: Find,
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """A member of a group stays one: the new master has not known it, and is asked by its host."""
    both = ("-m", GROUP, "-C", "10")
    with (
        running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric,
        running_opensm(fabric, "h5", tools, tmp_path, "-p", "9") as second,
    ):
        second("SUBNET UP")
        with running_opensm(fabric, "h0", tools, tmp_path, "-p", "12") as first:
            first("SUBNET UP")
            second("Entering STANDBY state")
            receiver = start(fabric, SERVER, "mckey", *both, "-b", HERE)
            wait_until(lambda: "joined" in of_host(fabric, "groups"))
        second("Entering MASTER state", 2)
        second("SUBNET UP", 2)
        wait_until(lambda: members(fabric, tools))
        sender = start(fabric, CLIENT, "mckey", *both, "-b", THERE, "-s")
        outputs = [each.communicate(timeout=60)[0] for each in (receiver, sender)]
        assert [receiver.returncode, sender.returncode] == [0, 0], outputs
        assert "receiving data transfers" in outputs[0]
        assert "RDMA_CM_EVENT_MULTICAST_ERROR" in outputs[0]
        server = start(fabric, SERVER, "udaddy", "-c", "3")
        wait_until(lambda: bool(of_host(fabric, "listening")))
        client = start(fabric, CLIENT, "udaddy", "-c", "3", "-s", HERE)
        outputs = [each.communicate(timeout=60)[0] for each in (server, client)]
        assert all("data transfers complete" in output for output in outputs), outputs
