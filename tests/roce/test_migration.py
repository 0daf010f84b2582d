# SPDX-License-Identifier: Apache-2.0
"""QEMU moves a virtual machine to another host by RDMA (`migrate rdma:`): it connects by librdmacm,
registers the machine's memory and writes it there. The machine does not run: its memory counts.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.roce.networks import Host, Network
from tests.roce.test_connections import described
from tests.support import end_group

pytestmark = [pytest.mark.debian, pytest.mark.timeout(120)]

PORT = 4444
MACHINE = "-machine accel=tcg -m 32 -nodefaults -nographic -S"
PLACE, BYTES = 0x100000, 3 << 20
WITHIN = 40.0


class Monitor:
    """QEMU's machine protocol, at a socket of its own."""

    def __init__(self, path: Path, process: subprocess.Popen[str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        until(lambda: path.exists() or process.poll() is not None)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r")
        self._lines.readline()
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: object) -> Any:
        wanted = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(wanted).encode())
        for line in self._lines:
            if "event" not in (said := json.loads(line)):
                return said["return"]
        raise EOFError(command)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


Machine = tuple[Monitor, subprocess.Popen[str]]


@pytest.fixture
def machine(
    debian_program: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Machine]]:
    """machine(host, …): one that stands still at its first instruction."""
    started: list[subprocess.Popen[str]] = []

    def run(host: Host, *more: str) -> Machine:
        monitor = tmp_path / f"monitor{len(started)}"
        words = [debian_program("qemu-system-x86_64"), *MACHINE.split()]
        qmp = ("-qmp", f"unix:{monitor},server,nowait")
        started.append(host.start(*words, *qmp, *more, options=("--log", "counters")))
        return Monitor(monitor, started[-1]), started[-1]

    yield run
    for process in started:
        end_group(process)


def test_a_machine_moves(network: Network, machine: Callable[..., Machine], tmp_path: Path) -> None:
    first, second = network.hosts
    memory, arrived = tmp_path / "memory", tmp_path / "arrived"
    memory.write_bytes(os.urandom(BYTES))
    there, target = machine(first, "-incoming", f"rdma:{first.ipv4}:{PORT}")
    until(lambda: any(each.endswith(f":{PORT}") for each in described(first)["listening"]))
    here, source = machine(second, "-device", f"loader,file={memory},addr={PLACE:#x},force-raw=on")
    here.ask("migrate", uri=f"rdma:{first.ipv4}:{PORT}")
    until(lambda: here.ask("query-migrate").get("status") in ("completed", "failed"))
    assert here.ask("query-migrate")["status"] == "completed", here.ask("query-migrate")
    until(lambda: there.ask("query-status")["status"] != "inmigrate")
    there.ask("pmemsave", val=PLACE, size=BYTES, filename=str(arrived))
    assert arrived.read_bytes() == memory.read_bytes()
    for monitor in (here, there):
        monitor.ask("quit")
    said = source.communicate(timeout=20)[0]
    assert target.wait(20) == 0
    written = re.search(r"counted: engine.payload_sent (\d+)", said)
    assert written is not None, said
    assert int(written[1]) > BYTES
