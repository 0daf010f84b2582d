# SPDX-License-Identifier: Apache-2.0
"""Linux' host with two I/O queues: it has no more of them than processors, and two here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvmeof.linux_disks import (
    TargetProcess,
    boot_guests,
    connect_disks,
    disconnect_disks,
    serving_guests,
    verify_command,
)
from tests.roce import linux_guest
from tests.roce.linux_guest import Lab

pytestmark = [pytest.mark.debian, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    reason = linux_guest.reason_not_to()
    if reason:
        pytest.skip(reason)
    with Lab(processors={2: 2}) as made:
        boot_guests(made, 2)
        yield made


@pytest.fixture
def target(lab: Lab, tmp_path: Path) -> Iterator[TargetProcess]:
    with serving_guests(lab, tmp_path) as running:
        yield running


@pytest.mark.parametrize("namespace", [1, 2], ids=["file", "memory"])
def test_what_is_written_is_read(lab: Lab, target: TargetProcess, namespace: int) -> None:
    """With two I/O queues, one of each processor, besides the admin queue."""
    guest = lab.guests[0]
    disk = f"/dev/{connect_disks(guest, queues=2)}n{namespace}"
    said = guest.run("dmesg")
    assert "creating 2 I/O queues" in said
    assert "mapped 2/0/0 default/read/poll queues" in said
    assert target.tell("queues") == 3
    assert "VERIFIED" in guest.run(verify_command(disk, 60, 1), 200)


def test_disconnecting_leaves_nothing(lab: Lab, target: TargetProcess) -> None:
    guest = lab.guests[0]
    for _ in range(3):
        controller = connect_disks(guest, queues=2)
        assert target.tell("queues") == 3
        disconnect_disks(guest, controller)
    deadline = time.monotonic() + 10
    while target.tell("queues"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert os.path.isdir(f"/proc/{target.process.pid}")
