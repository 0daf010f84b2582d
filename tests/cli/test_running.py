# SPDX-License-Identifier: Apache-2.0
"""What a process has counted, as others of its user see it: verbena info, sysfs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import clean_environment, verbena_command

PORT = "/sys/class/infiniband/verbena0/ports"
PROGRAM = """
import sys
from verbena import verbs
with verbs.open_device("verbena0") as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    mr = pd.alloc(4096, 7)
    for size in (4000, 8):
        near.write(mr, mr.addr, mr.rkey, length=size)
        cq.wait()[0].raise_for_status()
    near.read(mr, mr.addr, mr.rkey, length=400)
    cq.wait()[0].raise_for_status()
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def program(**variables: str) -> Iterator[subprocess.Popen[str]]:
    """Two WRITEs and a READ between its own queue pairs; then it waits with its device open."""
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=clean_environment() | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout
    assert started.stdout.readline() == "ready\n"
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def info() -> dict[str, Any]:
    done = subprocess.run(
        verbena_command("info", "--json"),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of(found: dict[str, Any], pid: int) -> dict[str, Any] | None:
    return next((each for each in found["processes"] if each["pid"] == pid), None)


def test_info_lists_running_processes_with_their_counters() -> None:
    with program() as one, program(VERBENA_CARRIER="roce") as other:
        found = info()
    direct, packets = of(found, one.pid), of(found, other.pid)
    assert direct
    assert packets
    assert direct["program"].startswith("python")
    assert {name: value for name, value in direct["counters"]["direct"].items() if value} == {
        "writes": 2,
        "reads": 1,
        "payload_sent": 4008,
        "payload_read": 400,
    }
    assert packets["counters"]["direct"]["writes"] == 0
    assert packets["counters"]["engine"]["payload_sent"] >= 4408
    sums = found["counters"]
    for part, name in (("direct", "writes"), ("engine", "packets_sent")):
        each = [process["counters"][part][name] for process in found["processes"]]
        assert sums[part][name] == sum(each)


def test_a_process_that_ends_or_is_stopped_is_not_listed() -> None:
    with program() as one, program() as other:
        os.kill(one.pid, signal.SIGSTOP)
        found = info()
        os.kill(one.pid, signal.SIGCONT)
        assert of(found, one.pid) is None
        assert of(found, other.pid)
    found = info()
    assert of(found, one.pid) is of(found, other.pid) is None


def counters(*names: str, **variables: str) -> list[int]:
    """What a program under `verbena run` reads."""
    done = subprocess.run(
        verbena_command("run", "--", "cat", *(f"{PORT}/{name}" for name in names)),
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [int(line) for line in done.stdout.splitlines()]


def test_sysfs_has_the_sums_as_linux_names_them() -> None:
    names = (
        "1/counters/port_xmit_packets",
        "1/counters/port_rcv_packets",
        "1/counters/port_xmit_data",
        "1/counters/port_rcv_data",
        "1/hw_counters/direct_writes",
        "1/hw_counters/sent_pkts",
    )
    before = counters(*names)
    with program(), program():
        now = counters(*names)
    words = 2 * (4008 + 400) // 4
    assert [b - a for a, b in zip(before, now, strict=True)] == [8, 8, words, words, 4, 0]


def test_sysfs_counts_packets_too() -> None:
    names = ("1/hw_counters/sent_pkts", "1/hw_counters/rcvd_pkts", "1/counters/port_xmit_packets")
    before = counters(*names)
    with program(VERBENA_CARRIER="roce"):
        sent, received, port = (b - a for a, b in zip(before, counters(*names), strict=True))
    assert sent == received == port >= 6


def test_every_counter_of_sysfs_can_be_read() -> None:
    script = f"cd {PORT}/1 && cat counters/* hw_counters/* | grep -cv '^[0-9][0-9]*$'"
    done = subprocess.run(
        verbena_command("run", "--", "sh", "-c", script),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "0\n", done.stderr


OTHER_USER = """
import json, os
from verbena.cli.running import running
os.setresuid(65534, 65534, 65534)
print(json.dumps([one.pid for one in running()]))
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="this process cannot become another user; run the tests as root"
)
def test_another_users_process_is_not_listed() -> None:
    with program() as mine:
        done = subprocess.run(
            [sys.executable, "-c", OTHER_USER],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert mine.pid not in json.loads(done.stdout)
