# SPDX-License-Identifier: Apache-2.0
"""``WriteLock``: one host at a time changes the files of a disk, by a reservation of NVMe.

The volume holds it during each change. The target refuses writes of all other hosts meanwhile. A
host that dies keeps the reservation until another one breaks it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from typing import Self

from verbena.nvmeof import CommandFailed, Disk, NvmeError, RegisterAction, ReservationType, Status
from verbena.nvmeof.reservations import is_holder, keys_of, report_length
from verbena.verbs.here import place

__all__ = ["WriteLock"]

_RESERVATIONS = 1 << 5  # of ONCS in Identify Controller
_PAUSE = 0.01  # seconds between two attempts
_KIND = ReservationType.WRITE_EXCLUSIVE


class WriteLock:
    """``async with``: waits ``patience`` seconds for other hosts. Raises OSError (EBUSY)."""

    def __init__(self, disk: Disk, patience: float) -> None:
        self._disk, self._patience = disk, patience
        here = place.get()
        drawn = here.random_bytes(8) if here else os.urandom(8)
        self._key = int.from_bytes(drawn, "little") | 1  # not 0, which names no host

    @property
    def is_supported(self) -> bool:
        """Whether the target has reservations; without them one host alone may write."""
        return bool(self._disk.controller.identity.optional_commands & _RESERVATIONS)

    async def __aenter__(self) -> Self:
        if self.is_supported:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._patience
            while not await self._try():
                if loop.time() > deadline:
                    raise OSError(
                        errno.EBUSY,
                        f"another host has changed files of disk {self._disk.nsid} for"
                        f" {self._patience:g} seconds: wait for it, or, if it has died,"
                        " break_lock() takes its reservation",
                    )
                await asyncio.sleep(_PAUSE)
        return self

    async def _try(self) -> bool:
        try:
            await self._disk.register(self._key)
            await self._disk.acquire(self._key, _KIND)
        except CommandFailed as error:
            if error.status != Status.RESERVATION_CONFLICT:
                raise
            return False
        return True

    async def __aexit__(self, *error: object) -> None:
        if self.is_supported:
            # It releases what it holds. Where the connection is lost the change has ended before.
            with suppress(NvmeError):
                await self._disk.register(0, self._key, action=RegisterAction.UNREGISTER)

    async def break_lock(self) -> bool:
        """Take the reservation of another host, which has died; return whether there was one.

        What that host has begun is over when this returns (Preempt and Abort).
        """
        if not self.is_supported:
            return False
        report = await self._disk.reservations()
        if (length := report_length(report)) > len(report):
            report = await self._disk.reservations(length)
        own = self._disk.controller.options.host_id.bytes
        keys = keys_of(report).items()
        holder = [key for host, key in keys if host != own and is_holder(report, host)]
        if not holder:
            return False
        await self._disk.register(self._key)
        try:
            return await self._disk.acquire(self._key, _KIND, preempt=holder[0], abort=True)
        finally:
            await self.__aexit__()
