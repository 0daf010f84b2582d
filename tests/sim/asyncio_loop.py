# SPDX-License-Identifier: Apache-2.0
"""asyncio's own event loop with the clock of a simulated world, to compare ``sim.loop.Loop`` with.

A ``SelectorEventLoop`` takes any selector. This one lets the world's time pass instead of waiting.
So asyncio decides which callback runs when, in whatever way its version does. Its clock has a
resolution of a nanosecond: timers have to be further apart than that, or equal.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from verbena.sim import Hosts
from verbena.sim.callbacks import PS
from verbena.sim.loop import Loop
from verbena.sim.network import Network


class WorldSelector(selectors.BaseSelector):
    """Watches descriptors of simulated adapters. Others, as the loop's own, are never readable."""

    def __init__(self, hosts: Hosts) -> None:
        self.attachments = hosts.attachments
        self.times: list[float] = []  # of all timers, in seconds
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        with suppress(KeyError):
            self.attachments.watch(fd, key)  # type: ignore[arg-type]
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self.attachments.unwatch(fd)
        return self._keys.pop(fd)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found: list[Any] = []
        while (why := self.attachments.gather(found, self._until(timeout))) == "events":
            pass
        assert why in ("readable", "time"), why
        return [(key, selectors.EVENT_READ) for key in found]

    def _until(self, timeout: float | None) -> int | None:
        """The exact time of the timer that the loop waits for: ``timeout`` was rounded."""
        if timeout is None or timeout <= 0:
            return None if timeout is None else 0
        wanted = self.attachments.now / PS + timeout
        whole, parts = min(self.times, key=lambda time: abs(time - wanted)).as_integer_ratio()
        return -(-whole * PS // parts)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class AsyncioLoop(asyncio.SelectorEventLoop):
    def __init__(self, hosts: Hosts, control_delay: float = 10e-6) -> None:
        self._world = WorldSelector(hosts)
        super().__init__(self._world)
        self.network = Network(self, hosts, control_delay)  # type: ignore[arg-type]
        hosts.attachments.set_looped(True)

    def time(self) -> float:
        return self._world.attachments.now / PS

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._world.times.append(when)
        return super().call_at(when, callback, *args, **options)

    def close(self) -> None:
        super().close()
        self._world.attachments.set_looped(False)

    create_connection = Loop.create_connection  # type: ignore[assignment]
    create_server = Loop.create_server  # type: ignore[assignment]
