# SPDX-License-Identifier: Apache-2.0
"""What connections of a loop, or of a synchronous object, share: devices and an event channel.

The first connection opens them and the last one closes them. ``choose_device`` says which
connection manager it is: a simulated host's, Verbena's agent or the system's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable
from weakref import WeakSet

from verbena.verbs import PD, Context, Device, VerbsError, get_device_list
from verbena.verbs.here import place
from verbena.verbs.library import load

from .agent_device import open_agent_device
from .arguments import limited
from .channel import Channel, LoopChannel, ThreadChannel, block, time_here
from .device import KERNEL_PATH, ConnectionManagerDevice, KernelDevice
from .errors import ManagerAbsent

__all__ = ["DeviceOpener", "HasConnectionManager", "Manager", "OpenDevices", "choose_device"]

DeviceOpener = Callable[[], Awaitable[ConnectionManagerDevice]]
"""Opens a device; the default is the choice of ``choose_device``."""


@runtime_checkable
class HasConnectionManager(Protocol):
    """A place, as a simulated host, with a connection manager of its own."""

    def open_connection_manager(self) -> ConnectionManagerDevice:
        """Open its device."""
        ...


async def choose_device(
    is_async: bool = True, seconds: float | None = None
) -> ConnectionManagerDevice:
    """Open the device of the place where the program runs. Raises ManagerAbsent.

    On a simulated host it is that host's; with Verbena's libibverbs, the agent; with the system's,
    /dev/infiniband/rdma_cm. ``seconds`` is how long an agent may take at most.
    """
    here: object = place.get()
    if isinstance(here, HasConnectionManager):
        return here.open_connection_manager()
    if here is not None:
        raise ManagerAbsent(errno.EOPNOTSUPP, "this simulated host has no connection manager")
    if load().is_verbena:
        pause = asyncio.sleep if is_async else block
        return await open_agent_device(pause, get_device_list(), seconds)
    return open_kernel_device()


def open_kernel_device() -> KernelDevice:
    """Open /dev/infiniband/rdma_cm. Raises ManagerAbsent."""
    try:
        return KernelDevice()
    except OSError as error:
        code = error.errno or errno.ENOENT
        advice = "load the module rdma_ucm" if code == errno.ENOENT else "see its permissions"
        text = f"{KERNEL_PATH} cannot be opened ({os.strerror(code)}): {advice}"
        raise ManagerAbsent(code, text) from None


class OpenDevices:
    """The devices that are open for connections, each with one protection domain, by node GUID."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Context, PD]] = {}
        self._users = 0

    def pd_of(self, guid: int) -> PD:
        """Return the protection domain of a device, which is opened if it is not. VerbsError."""
        if guid not in self._open:
            context = _device_of(guid).open()
            self._open[guid] = context, context.alloc_pd()
        return self._open[guid][1]

    def enter(self) -> None:
        """One more uses them."""
        self._users += 1

    def leave(self) -> None:
        """One less uses them: the last one closes them."""
        self._users -= 1
        if self._users == 0:
            self.close()

    def close(self) -> None:
        """Close them, with everything that was made from them."""
        while self._open:
            self._open.popitem()[1][0].close()


def _device_of(guid: int) -> Device:
    devices: list[Device] = get_device_list()
    for device in devices:
        if device.guid == guid:
            return device
    raise VerbsError(
        errno.ENODEV, f"libibverbs finds no device with the GUID {guid:#018x} of the connection"
    )


class Manager:
    """An event channel, and the devices of its connections. ``enter`` and ``leave`` count users."""

    def __init__(
        self,
        devices: OpenDevices,
        open_device: DeviceOpener | None,
        is_async: bool,
        is_lazy: bool = False,
    ) -> None:
        self.devices = devices
        self.is_async = is_async
        self._is_lazy = is_lazy
        self._open_device = open_device
        self._channel: Channel | None = None
        self._branches: WeakSet[Manager] = WeakSet()
        self._users = 0
        self._opening = asyncio.Lock() if is_async else None

    @property
    def channel(self) -> Channel:
        """The event channel, while somebody uses it."""
        assert self._channel is not None
        return self._channel

    @property
    def is_broken(self) -> bool:
        """Whether its device has ended."""
        return self._channel is not None and self._channel.ended is not None

    def deadline(self, seconds: float | None) -> float | None:
        """Return when so many seconds are over, by the clock that its channel has or will have."""
        seconds = limited(seconds)
        return None if seconds is None else time_here(self.is_async) + seconds

    async def enter(self, deadline: float | None = None) -> None:
        """One more uses it: the first one opens the device, before the deadline.

        Raises ManagerAbsent and OSError.
        """
        self._users += 1
        try:
            if self._opening is None:
                await self._open(deadline)
            else:
                await self._open_in_turn(self._opening, deadline)
        except BaseException:
            self._users -= 1
            raise
        self.devices.enter()

    async def _open_in_turn(self, opening: asyncio.Lock, deadline: float | None) -> None:
        """Open it if no other connection of the loop does, which may have a later deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await opening.acquire()
        except TimeoutError:
            raise _not_opened() from None
        try:
            await self._open(deadline)
        finally:
            opening.release()

    async def _open(self, deadline: float | None) -> None:
        if self._channel is not None:
            return
        if self._open_device is not None:
            device = await self._open_given(self._open_device, deadline)
        else:
            seconds = None if deadline is None else max(0.0, deadline - time_here(self.is_async))
            device = await choose_device(self.is_async, seconds)
        kind = LoopChannel if self.is_async else ThreadChannel
        self._channel = kind(device, self._is_lazy)

    async def _open_given(
        self, opener: DeviceOpener, deadline: float | None
    ) -> ConnectionManagerDevice:
        """Open the caller's device. Without a loop nothing can end a call of the caller's."""
        if not self.is_async:
            return await opener()
        timeout = asyncio.timeout_at(deadline)
        try:
            async with timeout:
                return await opener()
        except TimeoutError:
            if not timeout.expired():
                raise
            raise _not_opened() from None

    def leave(self) -> None:
        """One less uses it: the last one closes the device."""
        self._users -= 1
        if self._users == 0 and self._channel is not None:
            self._channel.close()
            self._channel = None
        self.devices.leave()

    def abandon(self) -> None:
        """Close what the connections of a loop that has ended have left open."""
        for branch in list(self._branches):
            branch.abandon()
        if self._channel is not None:
            self._channel.close()
        self._users, self._channel = 0, None
        self.devices.close()

    def branch(self, is_lazy: bool = False) -> Manager:
        """Return another one with a channel of its own: a listener's, or another thread's."""
        made = Manager(self.devices, self._open_device, self.is_async, is_lazy)
        self._branches.add(made)
        return made


def _not_opened() -> ManagerAbsent:
    return ManagerAbsent(
        errno.ETIMEDOUT, "the time was over before the connection manager's device was open"
    )


# ---- those of loops ------------------------------------------------------------------------------

_managers: dict[asyncio.AbstractEventLoop, dict[object, Manager]] = {}
_managers_lock = threading.Lock()


def manager_of_loop(open_device: DeviceOpener | None) -> Manager:
    """Return the manager of the running loop and the place; another one if that is broken."""
    loop = asyncio.get_running_loop()
    with _managers_lock:
        for ended in [each for each in _managers if each.is_closed()]:
            for manager in _managers.pop(ended).values():
                manager.abandon()
        managers = _managers.setdefault(loop, {})
        key = (id(place.get()), open_device)
        found = managers.get(key)
        if found is None or found.is_broken:
            found = managers[key] = Manager(OpenDevices(), open_device, True)
        return found
