# SPDX-License-Identifier: Apache-2.0
"""A host of Verbena uses disks of Linux' own ``nvmet-rdma``, unmodified."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvmeof.host_child import CONNECTED
from tests.nvmeof.linux_disks import NQN, boot_guests, cut_cable, start_linux_target
from tests.roce import linux_guest
from tests.roce.linux_guest import Lab
from tests.support import clean_environment, verbena_command

pytestmark = [pytest.mark.debian, pytest.mark.timeout(300)]
MIB = 1 << 20
HALVES = [{"NVME_BEGIN": str(begin), "NVME_SIZE": str(8 * MIB)} for begin in (0, 8 * MIB)]
CHILD = str(Path(__file__).with_name("host_child.py"))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    reason = linux_guest.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Lab() as made:
        (guest,) = boot_guests(made, 2)
        start_linux_target(guest)
        yield made


def start(lab: Lab, *words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        lab.command(*words),
        env=clean_environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_connected(lab: Lab, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Start a child that connects, and wait until it has."""
    process = start(lab, *words, **variables)
    assert process.stdout is not None
    said = process.stdout.readline()
    if not said.startswith(CONNECTED):
        raise AssertionError(said + process.communicate(timeout=60)[0])
    return process


def run(lab: Lab, *words: str, timeout: float = 60) -> str:
    process = start(lab, *words)
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output
    return output


def child(lab: Lab, what: str, *words: str) -> list[str]:
    return [sys.executable, CHILD, lab.guests[0].ipv4, NQN, what, *words]


def test_the_command_lists_it(lab: Lab) -> None:
    said = run(lab, *verbena_command("disk", "list", lab.guests[0].ipv4))
    assert said == f"{NQN} at {lab.guests[0].ipv4}, port 4420\n"


def test_what_is_written_is_read(lab: Lab) -> None:
    assert "VERIFIED" in run(lab, *child(lab, "verify", "300"), timeout=200)


def test_two_hosts_at_once(lab: Lab) -> None:
    """Each writes a region of the disk, and finds there what it wrote."""
    words = child(lab, "verify", "0", "5")
    running = [start_connected(lab, *words, **half) for half in HALVES]
    for each in running:
        output, _ = each.communicate(timeout=100)
        assert "VERIFIED" in output, output
        assert "reconnects=0" in output


def test_connecting_beside_a_process_that_gets_packets(lab: Lab) -> None:
    """Linux has one counter for all packets to this host, and so the agent sees it jump.

    Where an answer of Linux' connection manager is not believed, it comes again after 4.3 s.
    """
    seconds = []
    for _ in range(6):
        running = [start(lab, *child(lab, "verify", "2"), **half) for half in HALVES]
        for each in running:
            output, _ = each.communicate(timeout=100)
            assert "VERIFIED" in output, output
            seconds.append(float(output.partition(CONNECTED)[2].split()[0]))
    assert max(seconds) < 3.5, seconds


def test_the_commands_that_linux_has(lab: Lab) -> None:
    assert "DONE" in run(lab, *child(lab, "commands"))


def test_the_command_measures_it(lab: Lab) -> None:
    address = lab.guests[0].ipv4
    said = run(lab, *verbena_command("disk", "bench", address, "--seconds", "0.5"))
    assert "commands/s" in said


def test_a_cable_that_is_cut(lab: Lab) -> None:
    """For ten seconds, with I/O going on: nothing is lost."""
    running = start_connected(lab, *child(lab, "verify", "0", "22"))
    time.sleep(1)
    cut_cable(lab, lab.guests[0], 10)
    output, _ = running.communicate(timeout=150)
    assert "VERIFIED" in output, output
    assert int(output.split("reconnects=")[1].split()[0]) >= 1


def test_a_target_that_is_started_again(lab: Lab) -> None:
    """Its port goes, and comes again after some seconds."""
    guest = lab.guests[0]
    running = start_connected(lab, *child(lab, "verify", "0", "12"))
    time.sleep(1)
    link = f"/sys/kernel/config/nvmet/ports/1/subsystems/{NQN}"
    guest.run(f"rm {link}")
    time.sleep(4)
    guest.run(f"ln -s /sys/kernel/config/nvmet/subsystems/{NQN} {link}")
    output, _ = running.communicate(timeout=150)
    assert "VERIFIED" in output, output
    assert int(output.split("reconnects=")[1].split()[0]) >= 1


def test_refusals(lab: Lab) -> None:
    output, _ = start(lab, *child(lab, "refused")).communicate(timeout=60)
    assert "no such subsystem" in output, output
