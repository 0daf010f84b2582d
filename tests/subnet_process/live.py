# SPDX-License-Identifier: Apache-2.0
"""A live fabric in a thread of the test, and programs that are attached to its hosts.

``Live`` is the fabric: ``live.do(function)`` calls the function in the fabric's thread, between two
rounds of its loop, and returns its result. ``Program`` is a Python process at a host, which carries
out the code that a test gives it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from tests.support import clean_environment
from verbena.fabrics import Fabric
from verbena.manage.agents import NodePort, Subnet
from verbena.subnet_process.running import make_fabric
from verbena.subnet_process.server import FabricServer

T = TypeVar("T")
PROGRAM = Path(__file__).with_name("program.py")
WAIT_SECONDS = 60


class Live:
    """A fabric with its built-in subnet manager at the first host, or without one."""

    def __init__(self, fabric: Fabric, *, managed: bool = True) -> None:
        self.name = f"test-{os.getpid()}-{threading.get_native_id()}"
        self.errors: list[str] = []
        host = fabric.hosts[0] if managed else None
        self.made = make_fabric(fabric, self.name, sm_host=host, report=self.errors.append)
        self._here, self._there = socket.socketpair()
        self._there.setblocking(False)
        self._calls: list[Callable[[], None]] = []
        self.server.watch(self._there, self._run_calls)
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()

    @property
    def server(self) -> FabricServer:
        return self.made.server

    @property
    def subnet(self) -> Subnet:
        return self.made.live.subnet

    def _run_calls(self) -> None:
        self._there.recv(4096)
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def do(self, function: Callable[[], T]) -> T:
        """Call this in the fabric's thread; programs see what it has changed when this returns."""
        result: Future[T] = Future()

        def call() -> None:
            try:
                value = function()
                assert self.made.page is not None
                self.made.page.refresh()
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(value)

        self._calls.append(call)
        self._here.send(b"1")
        return result.result(WAIT_SECONDS)

    def port(self, name: str, number: int = 1) -> NodePort:
        return self.subnet.nodes[name].ports[number]

    def beside(self, name: str) -> NodePort:
        """The switch's port at a host's cable."""
        peer = self.port(name).peer
        assert peer is not None
        return peer

    def between(self, one: str, other: str) -> tuple[int, int]:
        """The numbers of the two ports of the cable between two nodes."""
        for port in self.subnet.nodes[one].ports.values():
            if port.peer is not None and port.peer.node.name == other:
                return port.number, port.peer.number
        raise AssertionError(f"{one} and {other} have no cable")

    def lid(self, name: str) -> int:
        return self.port(name).lid

    def counts(self, name: str, number: int = 1) -> dict[str, int]:
        """The counters of a port, with all that programs have sent until now."""

        def read() -> dict[str, int]:
            self.subnet.read_counters()
            return dict(self.port(name, number).tally)

        return self.do(read)

    def set_route(self, switch: str, lid: int, port: int) -> None:
        """Write an entry of a switch's forwarding table; 255 is none."""

        def write() -> None:
            tables = self.subnet.nodes[switch].forwarding
            assert tables is not None
            block = bytearray(tables.linear_block(lid // 64))
            block[lid % 64] = port
            tables.set_linear_block(lid // 64, bytes(block))
            self.subnet.routing_changed()

        self.do(write)

    def set_group(self, mlid: int, ports: dict[str, list[int]]) -> None:
        """Write the ports of switches to which datagrams with a multicast LID go."""

        def write() -> None:
            for switch, numbers in ports.items():
                tables = self.subnet.nodes[switch].forwarding
                assert tables is not None
                masks = bytearray(64)
                mask = sum(1 << number for number in numbers)
                masks[2 * (mlid - 0xC000) : 2 * (mlid - 0xC000) + 2] = mask.to_bytes(2, "big")
                tables.set_multicast_block(0, 0, bytes(masks))
            self.subnet.routing_changed()

        self.do(write)

    def end(self) -> None:
        """Let the fabric's process end, as programs see it."""
        if self._thread.is_alive():
            self.do(self.server.stop)
            self._thread.join(WAIT_SECONDS)
            self.server.close()
        assert not self.errors, self.errors[0]


class Program:
    """A Python process at a host of the fabric with this name."""

    def __init__(self, fabric: str, host: str, **settings: str) -> None:
        environment = clean_environment() | {
            "VERBENA_FABRIC": fabric,
            "VERBENA_HOST": host,
            "VERBENA_LOG": "errors",
            **settings,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def begin(self, code: str) -> None:
        """Start code, whose result ``result`` waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        """The value of ``result`` after the code."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the program has ended: {self.end()}")
        value, error = json.loads(line)
        if error:
            raise AssertionError(error)
        return value

    def run(self, code: str) -> Any:
        """Carry out code and return the value of ``result``."""
        self.begin(code)
        return self.result()

    def end(self) -> str:
        """End the process and return what it has written to stderr."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        text = self.process.stderr.read() if self.process.stderr else ""
        self.process.wait(WAIT_SECONDS)
        return text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_SECONDS)


def connect(one: Program, other: Program, **terms: Any) -> None:
    """Connect the QPs of two programs by their LIDs."""
    ends = [each.run("result = [qp.qp_num, context.query_port(1).lid]") for each in (one, other)]
    for program, (number, lid) in ((one, ends[1]), (other, ends[0])):
        program.run(f"connect({number}, {lid}, **{terms!r})")
