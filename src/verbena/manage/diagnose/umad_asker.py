# SPDX-License-Identifier: Apache-2.0
"""Asks a fabric through Linux's umad device, as infiniband-diags do: real hardware, or a program
of ``verbena run --fabric``.

``UmadAsker`` is an ``AskFabric``. It registers an agent for directed-route SMPs and one for
performance management, and lets the kernel repeat requests. The kernel takes the upper half of a
transaction ID for itself, so that responses are told apart by the lower half.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Self

from ..attribute_ids import MgmtClass
from ..mad import GENERAL_QKEY, MAD_BYTES, PERMISSIVE_LID
from .mad_sweep import Asked

__all__ = ["UmadAsker"]

REGISTER_AGENT, ENABLE_PKEY = 0xC01C1B01, 0x1B03
REGISTRATION = Struct("=I4I3B3sBx")  # id, method mask, qpn, class, version, oui, RMPP version
HEADER = Struct("=IIIII4s4s2sBBBBBB16s4sH6x")
HEADER_BYTES = 64
TIMEOUT_MS, RETRIES = 200, 3
AT_ONCE = 32
GIVE_UP_SECONDS = TIMEOUT_MS / 1000 * (RETRIES + 2)
SMP_VERSION = PERFORMANCE_VERSION = 1


class UmadAsker:
    """A umad device such as /dev/infiniband/umad0. Raises OSError if it cannot be used."""

    def __init__(self, device: str | Path = "/dev/infiniband/umad0") -> None:
        self._descriptor = os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(self._descriptor, ENABLE_PKEY)
            self._agents = {
                0: self._register(0, MgmtClass.SUBN_DIRECTED_ROUTE, SMP_VERSION),
                1: self._register(1, MgmtClass.PERFORMANCE, PERFORMANCE_VERSION),
            }
        except OSError:
            self.close()
            raise

    def _register(self, qpn: int, mgmt_class: int, version: int) -> int:
        request = bytearray(REGISTRATION.pack(0, 0, 0, 0, 0, qpn, mgmt_class, version, bytes(3), 0))
        fcntl.ioctl(self._descriptor, REGISTER_AGENT, request, True)
        return int(REGISTRATION.unpack(request)[0])

    def ask_all(self, requests: Sequence[Asked]) -> list[bytes | None]:
        """See ``AskFabric``."""
        found: list[bytes | None] = [None] * len(requests)
        waiting: dict[int, int] = {}
        sent = 0
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while sent < len(requests) or waiting:
            while sent < len(requests) and len(waiting) < AT_ONCE:
                waiting[sent + 1] = sent
                self._send(sent + 1, *requests[sent])
                sent += 1
            came = self._receive(deadline)
            if came is None:
                return found
            number, mad = came
            if number in waiting:
                deadline = time.monotonic() + GIVE_UP_SECONDS
                place = waiting.pop(number)
                if mad is not None:
                    # The asker's own transaction ID, by which it knows its request.
                    found[place] = mad[:8] + requests[place][0][8:16] + mad[16:]
        return found

    def _send(self, number: int, mad: bytes, lid: int | None) -> None:
        general = lid is not None
        to = PERMISSIVE_LID if lid is None else lid
        header = HEADER.pack(
            self._agents[int(general)],
            0,
            TIMEOUT_MS,
            RETRIES,
            0,
            int(general).to_bytes(4, "big"),
            (GENERAL_QKEY if general else 0).to_bytes(4, "big"),
            to.to_bytes(2, "big"),
            *(0, 0, 0, 0, 0, 0),
            bytes(16),
            bytes(4),
            0,
        )
        os.write(self._descriptor, header + mad[:8] + number.to_bytes(8, "big") + mad[16:])

    def _receive(self, deadline: float) -> tuple[int, bytes | None] | None:
        """Return the number of a request and its response; None when nothing comes any more.

        A request that was never answered comes back with a status, and has no response.
        """
        remaining = max(0.0, deadline - time.monotonic())
        if not select.select([self._descriptor], [], [], remaining)[0]:
            return None
        try:
            packet = os.read(self._descriptor, HEADER_BYTES + MAD_BYTES)
        except BlockingIOError:
            return 0, None
        status, mad = HEADER.unpack_from(packet)[1], packet[HEADER_BYTES:]
        number = int.from_bytes(mad[12:16], "big")
        return number, None if status or len(mad) < MAD_BYTES else mad

    def close(self) -> None:
        """Close the device; its agents end with it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
