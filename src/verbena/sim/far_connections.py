# SPDX-License-Identifier: Apache-2.0
"""``verbena.cm`` for programs in processes of their own: its devices are in the world's process.

``FarDevice`` is what the program has; each call is a letter that ``processes.Processes`` answers at
once, by the ``ProgramDevices`` of the program's host. That there are events is a letter, too.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .callbacks import PS
from .connections import SimulatedDevice
from .errors import Deadlock

if TYPE_CHECKING:
    from verbena.cm import ConnectionManagerDevice, DeviceAnswer

    from .connections import SimulatedHostManager

__all__ = ["FarDevice", "ProgramDevices", "WorldProcess"]


# ---- the world's side ----------------------------------------------------------------------------


class _OpenedDevice(SimulatedDevice):
    """A device of a program, which is told of events by a letter."""

    def __init__(self, manager: SimulatedHostManager, tell: Callable[[], None]) -> None:
        self._tell = tell
        super().__init__(manager, manager.guid)

    def signal(self, has_events: bool) -> None:
        """Tell the program that there are events."""
        if has_events and not self.is_signalled:
            self._tell()
            self._manager.managers.attachments.wake()
        self.is_signalled = has_events


class ProgramDevices:
    """The devices that a program has open. ``tell`` is called with the number of one that has
    events, and ``manager`` with nothing, for the connection manager of the program's host."""

    def __init__(
        self, manager: Callable[[], SimulatedHostManager], tell: Callable[[int], None]
    ) -> None:
        self._manager, self._tell = manager, tell
        self._devices: dict[int, _OpenedDevice] = {}

    def answer(self, asked: bytes) -> bytes:
        """Carry out a call of a ``FarDevice``, and return its result or refusal."""
        from verbena.cm.errors import DeviceRefusal

        name, number, given = pickle.loads(asked)
        returned, refused = None, None
        try:
            returned = self._call(name, number, given)
        except DeviceRefusal as error:
            refused = error.errno, error.refusal
        except OSError as error:
            refused = (error.errno, None)
        device = self._devices.get(number)
        return pickle.dumps((returned, refused, device is not None and device.is_signalled))

    def _call(self, name: str, number: int, given: tuple[Any, ...]) -> DeviceAnswer | None:
        if name == "open":
            manager = self._manager()
            manager.refresh()
            self._devices[number] = _OpenedDevice(manager, lambda: self._tell(number))
            return None
        device = self._devices[number]
        if name == "execute":
            return device.execute(*given)
        if name == "migrate":
            device.migrate(given[0], self._devices[given[1]])
        elif name == "next_event":
            return device.next_event()
        else:
            self._devices.pop(number).close()
        return None

    def close(self) -> None:
        """The program has ended: its devices are closed."""
        while self._devices:
            self._devices.popitem()[1].close()


# ---- the program's side --------------------------------------------------------------------------


class WorldProcess(Protocol):
    """How a program reaches the world's process (``remote.FarHost``)."""

    @property
    def now(self) -> int:
        """The world's time in ps."""
        ...

    def ask(self, text: bytes) -> bytes:
        """Send a call, and return the answer. No time passes."""
        ...

    def pass_time(self, until: int | None) -> str:
        """Let time pass until a letter comes, something happens at an adapter, or that time."""
        ...


class FarDevice:
    """An event channel of a host whose world is another process (``ConnectionManagerDevice``)."""

    def __init__(self, world: WorldProcess, number: int) -> None:
        self._world, self.number = world, number
        self.is_signalled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: Callable[[], None] | None = None
        self._closed = False
        self._ask("open")

    def _ask(self, name: str, *given: Any) -> DeviceAnswer | None:
        from verbena.cm.errors import DeviceRefusal

        answer = self._world.ask(pickle.dumps((name, self.number, given)))
        returned, refused, self.is_signalled = pickle.loads(answer)
        if refused is not None and refused[0] == errno.EAGAIN:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if refused is not None:
            raise DeviceRefusal(*refused)
        return returned  # type: ignore[no-any-return]

    def has_events(self) -> None:
        """A letter has come that says so."""
        self.is_signalled = True
        if self._loop is not None and self._ready is not None:
            self._loop.call_soon(self._ready)

    def execute(self, command: bytes, option: bytes = b"") -> DeviceAnswer:
        """Carry out a command. Raises OSError."""
        answer = self._ask("execute", command, option)
        assert answer is not None
        return answer

    def migrate(self, number: int, old: ConnectionManagerDevice) -> None:
        """Move an identifier to this event channel from that of ``old``. Raises OSError."""
        assert isinstance(old, FarDevice)
        self._ask("migrate", number, old.number)

    def next_event(self) -> DeviceAnswer | None:
        """Return the answer to a GET_EVENT, or None if there is no event. Raises OSError."""
        return self._ask("next_event") if self.is_signalled else None

    def watch(self, ready: Callable[[], None]) -> None:
        """Have the running loop call this whenever there may be events."""
        self._loop, self._ready = asyncio.get_running_loop(), ready
        if self.is_signalled:
            self._loop.call_soon(ready)

    def unwatch(self) -> None:
        """Call it no more."""
        self._loop = self._ready = None

    def wait(self, seconds: float | None) -> None:
        """Let virtual time pass until there may be events, or the seconds are over. Raises
        Deadlock."""
        until = None
        if seconds is not None:
            until = self._world.now + max(1, math.ceil(seconds * PS))
        while not self.is_signalled and (until is None or self._world.now < until):
            why = self._world.pass_time(until)
            if why in ("done", "deadlock"):
                raise Deadlock("a program waits for its connection manager, and nothing happens")

    def close(self) -> None:
        """Destroy every identifier."""
        if not self._closed:
            self._closed = True
            self.unwatch()
            self._ask("close")
