# SPDX-License-Identifier: Apache-2.0
"""A program at a host of a live fabric that writes anything over what it may write of the page that
the fabric's process shares with programs: its own flows, and the count of flows.

Fuzzer (fuzzing.py) has one. The records of ports and other programs' flows are left alone: programs
of one user trust each other (docs/design.md). The process must go on whatever is there, and nobody
can make the page shorter under it.
"""

from __future__ import annotations

import mmap
import os
import random
import socket
import struct
from contextlib import suppress

from verbena.subnet_process.messages import LONGEST_WELCOME, Hello, Role, Welcome
from verbena.subnet_process.port_page import COUNTS_AT, FLOW_BYTES, LINE

_HEAD = struct.Struct("=6QII")
COUNTS = 23
NUMBERS = (0, 1, 2, 1000, 1 << 31, 1 << 40, 1 << 55, 1 << 57, 1 << 62, 1 << 63, (1 << 64) - 1)


class Scribbler:
    """The page of a host's program, by the connection for its calls."""

    def __init__(self, calls: socket.socket, host: str, source: random.Random) -> None:
        calls.send(Hello(Role.PAGE, host).pack())
        raw, fds, _, _ = socket.recv_fds(calls, LONGEST_WELCOME, 4)
        welcome = Welcome.parse(raw)
        assert welcome is not None
        assert not welcome.error
        self._calls, self._random = calls, source
        (self.fd,) = fds
        _, size, _, self._flows_at, *_ = _HEAD.unpack_from(welcome.data)
        self._page = mmap.mmap(self.fd, size)
        self.flows: list[int] = []

    def close(self) -> None:
        """Let go of the page; the connection is its owner's."""
        self._page.close()
        os.close(self.fd)

    def ask(self, call: bytes) -> None:
        """Send a call; the answer to a question is a flow, which may be written over."""
        self._calls.send(call)
        if int.from_bytes(call[:4], "little") == 2:  # a release has no answer
            return
        at = int.from_bytes(self._calls.recv(64)[8:16], "little")
        if at:
            self.flows.append(at)

    def step(self) -> None:
        """Write something, or try to change the page's size."""
        if self._random.random() < 0.05:
            with suppress(OSError):
                os.ftruncate(self.fd, self._random.choice((0, 1, 4096, 1 << 62)))
            return
        if self._random.random() < 0.1 or not self.flows:
            count = self._random.choice((0, 1, 1 << 16, (1 << 32) - 1))
            self._page[self._flows_at - LINE : self._flows_at - LINE + 4] = count.to_bytes(
                4, "little"
            )
            return
        at = self._random.choice(self.flows[-20:])
        if self._random.random() < 0.2:
            self._page[at : at + FLOW_BYTES] = self._random.randbytes(FLOW_BYTES)
            return
        for _ in range(self._random.choice((1, 3, COUNTS))):
            self.write_count(at, self._random.randrange(COUNTS), self._random.choice(NUMBERS))

    def write_count(self, at: int, number: int, value: int) -> None:
        """Write one of the counts of a flow (struct vb_fabric_flow)."""
        struct.pack_into("=Q", self._page, at + COUNTS_AT + 8 * number, value)
