# SPDX-License-Identifier: Apache-2.0
"""``WriteLock``: one host at a time changes the files of a disk, by a reservation of NVMe.

The volume holds it during each change. The reservation is never released: between changes the host
of the last one keeps it, registered with a key that says so (``IDLE``), and the next host takes it
by Preempt of this key. So a host that has lost its turn, and does not know it yet, can write never
more: another one always has the reservation. A host that dies in a change has a key of its own,
which another one preempts with ``break_lock``.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self, TypeVar

from verbena.nvmeof import (
    CommandFailed,
    ConnectionLost,
    Disk,
    HostState,
    NvmeError,
    RegisterAction,
    ReservationType,
    Status,
)
from verbena.nvmeof.reservations import is_holder, keys_of, report_length
from verbena.verbs.here import place

__all__ = ["IDLE", "WriteLock"]

IDLE = int.from_bytes(b"VERBENAF", "little")  # even, so no key of a host that makes a change
_RESERVATIONS = 1 << 5  # of ONCS in Identify Controller
_PAUSE = 0.01  # seconds between two attempts
_MOST_COUNTED = 0.25  # seconds of patience that an attempt takes at most
_MOST_LOSSES = 10  # of the connection in a step: later ones may be its fault
_ENDED = HostState.DEAD, HostState.CLOSED
_KIND = ReservationType.WRITE_EXCLUSIVE
_REPLACE = RegisterAction.REPLACE

T = TypeVar("T")


class WriteLock:
    """``async with``: waits ``patience`` seconds for other hosts.

    Raises OSError: EBUSY where they take longer, ESTALE where one has broken the lock meanwhile.
    """

    def __init__(self, disk: Disk, patience: float) -> None:
        self._disk, self._patience = disk, patience
        here = place.get()
        drawn = here.random_bytes(8) if here else os.urandom(8)
        self._key = int.from_bytes(drawn, "little") | 1
        self._was_idle = False  # whether its last step was to register IDLE
        self._step = asyncio.Lock()  # taking a turn, or breaking the lock of another host

    @property
    def writer(self) -> str:
        """What tells the one who has this lock from all others."""
        return f"{self._key:016x}"

    @property
    def is_supported(self) -> bool:
        """Whether the target has reservations; without them one host alone may write."""
        return bool(self._disk.controller.identity.optional_commands & _RESERVATIONS)

    async def __aenter__(self) -> Self:
        if self.is_supported:
            try:
                await self._wait_turn()
            except BaseException:
                await self._end_turn()
                raise
        return self

    async def _wait_turn(self) -> None:
        """Try until it is this host's turn, or ``patience`` seconds are over.

        An attempt that takes long, since the connection was lost or this process was stopped, has
        seen little of other hosts: it counts for _MOST_COUNTED seconds.
        """
        loop = asyncio.get_running_loop()
        waited = 0.0
        while True:
            begun = loop.time()
            if await self._over_losses(self._try):
                return
            if waited >= self._patience:
                raise OSError(
                    errno.EBUSY,
                    f"another host has changed files of disk {self._disk.nsid} for"
                    f" {self._patience:g} seconds: wait for it, or, if it has died,"
                    " break_lock() takes its reservation",
                )
            await asyncio.sleep(_PAUSE)
            waited += min(loop.time() - begun, _MOST_COUNTED)

    async def _over_losses(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step again whose connection was lost, when there is one again.

        A command of reservations may have been carried out before its answer was lost, so a
        controller does not repeat it; a step of this lock finds out by its next commands. Raises
        ConnectionLost where there is no connection any more, or each is lost in the step.
        """
        for _ in range(_MOST_LOSSES):
            with suppress(ConnectionLost):
                return await step()
            if self._disk.is_gone or self._disk.controller.state in _ENDED:
                break
        return await step()

    async def _try(self) -> bool:
        """Take the reservation if nobody has it, or an idle host, or this one."""
        async with self._step:
            return await self._register() and (
                await _granted(self._disk.acquire(self._key, _KIND)) or await self._preempt(IDLE)
            )

    async def _register(self) -> bool:
        """Register the own key; False where another volume of this host makes a change."""
        disk, was_idle = self._disk, self._was_idle
        self._was_idle = False
        return (
            (was_idle and await _granted(disk.register(self._key, IDLE, action=_REPLACE)))
            or await _granted(disk.register(self._key, persist=True))
            or await _granted(disk.register(self._key, IDLE, action=_REPLACE))
        )

    async def _preempt(self, key: int) -> bool:
        """Take the reservation from the host with a key, if it has it. What that host has begun is
        over when this returns (Preempt and Abort)."""
        try:
            return await self._disk.acquire(self._key, _KIND, preempt=key, abort=True)
        except CommandFailed as error:
            if error.status != Status.RESERVATION_CONFLICT:
                raise
            return False

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if not self.is_supported:
            return
        await self._end_turn()
        if isinstance(error, CommandFailed) and error.status == Status.RESERVATION_CONFLICT:
            raise OSError(
                errno.ESTALE,
                f"another host has broken this host's lock of disk {self._disk.nsid} in a change:"
                " look whether the change is there, and make it again",
            ) from error

    async def _end_turn(self) -> None:
        """Let others take the reservation. Nothing happens where another host has broken it, or
        there is no connection any more: the change has ended before then."""

        async def become_idle() -> None:
            await self._disk.register(IDLE, self._key, action=_REPLACE)
            self._was_idle = True

        with suppress(NvmeError):
            await self._over_losses(become_idle)

    async def break_lock(self) -> bool:
        """Take the reservation of another host, in a change; return whether there was one.

        What that host has begun is over when this returns, and what it writes later is refused.
        """
        if not self.is_supported:
            return False
        async with self._step:
            key = await self._other_holder()
            if key is None or key == IDLE:
                return False
            try:
                return await self._register() and await self._preempt(key)
            finally:
                await self._end_turn()

    async def _other_holder(self) -> int | None:
        """Return the key of another host that has the reservation."""
        report = await self._disk.reservations()
        if (length := report_length(report)) > len(report):
            report = await self._disk.reservations(length)
        own = self._disk.controller.options.host_id.bytes
        keys = keys_of(report).items()
        found = (key for host, key in keys if host != own and is_holder(report, host))
        return next(found, None)


async def _granted(command: Awaitable[object]) -> bool:
    """Return whether a command of reservations succeeds, and does not conflict."""
    try:
        await command
    except CommandFailed as error:
        if error.status != Status.RESERVATION_CONFLICT:
            raise
        return False
    return True
