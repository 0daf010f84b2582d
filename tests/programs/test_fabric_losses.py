# SPDX-License-Identifier: Apache-2.0
"""Debian's programs over links of a live fabric that lose packets: they go on, and the ports count
what is lost.

Which packets are lost differs from run to run. Each program sends so many that ports of the hosts
lose a dozen or more on average, since none at all would then be a matter of one run in 100,000.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.subnet_process.support import RunningFabric, running_fabric
from tests.support import clean_environment, verbena_command

pytestmark = pytest.mark.debian

Find = Callable[[str], str]
HOSTS = ("h1", "h6")
SERVER = "10.0.0.2"
PORT = "7471"


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFabric]:
    """Its time-outs of connections are 8 ms, and each of its links loses a hundredth."""
    more = ("--sm-set", "packet_life_time=10", "--loss", "all=1%")
    with running_fabric("clos2:4", tmp_path_factory.mktemp("fabric"), *more) as made:
        yield made


@pytest.mark.parametrize(
    "words",
    [
        ("rping", "-C", "100", "-p", PORT),
        ("ib_send_bw", "-F", "-n", "500", "-s", "8192"),
        ("ib_read_lat", "-F", "-n", "500"),
        ("ucmatose", "-c", "10", "-C", "50", "-p", PORT),
    ],
)
def test_programs_go_on(
    fabric: RunningFabric,
    debian_program: Find,
    fast_clock: dict[str, str],
    words: tuple[str, ...],
) -> None:
    assert_goes_on(fabric, debian_program, fast_clock, words)


def assert_goes_on(
    fabric: RunningFabric, find: Find, env: dict[str, str], words: tuple[str, ...]
) -> None:
    """Run a program and its client, which succeed though ports of their hosts lose packets."""
    name, *options = words
    both = [find(name), *options]
    ends = {
        "rping": (["-s"], ["-c", "-a", SERVER]),
        "ucmatose": ([], ["-s", SERVER]),
    }.get(name, ([], ["localhost"]))
    before = damaged(fabric)
    done = subprocess.run(
        verbena_command(
            *("pair", "--fabric", fabric.name, "--host", ",".join(HOSTS)),
            *("--", *both, *ends[0], "--", *both, *ends[1]),
        ),
        env=clean_environment() | env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert damaged(fabric) > before


def damaged(fabric: RunningFabric) -> int:
    """The PortRcvErrors of the ports of both hosts."""
    found = 0
    for host in HOSTS:
        file = "/sys/class/infiniband/verbena0/ports/1/counters/port_rcv_errors"
        found += int(fabric.run(host, "cat", file).stdout)
    return found


def test_the_tools_show_what_is_lost(fabric: RunningFabric, debian_program: Find) -> None:
    """The links lose nothing more by then: the program waits for 3 s for each answer that is lost
    of the counters, whatever its --timeout is.
    """
    assert_goes_on(fabric, debian_program, {}, ("rping", "-C", "100", "-p", PORT))
    repaired = verbena_command("fabric", "--name", fabric.name, "--loss", "all=0")
    subprocess.run(repaired, env=clean_environment(), check=True, capture_output=True, timeout=60)
    done = fabric.run("h3", debian_program("ibqueryerrors"), "--threshold-file", "/dev/null")
    assert "[PortRcvErrors == " in done.stdout, done.stdout + done.stderr
