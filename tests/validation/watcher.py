# SPDX-License-Identifier: Apache-2.0
"""A hash of all that the worlds of a row have given, to compare runs by other numbers of threads.

__main__ watches a row with ``--threads``; CheckedWorld tells the watcher of each run. What a hash
is made of: flows, links, the counters of adapters, the waiting ports, and of the first worlds the
begin of a capture.
"""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.sim.fabrics import CheckedWorld
from verbena.sim import World, threads

CAPTURED = 2  # worlds
CAPTURE_MOST = 4 << 20  # bytes of a file, after which the simulator counts packets as lost
CAPTURE_SEEN = 1 << 20
HOSTS_SEEN = 64


def threads_now() -> int:
    return len(os.listdir("/proc/self/task"))


class Watcher:
    """The hash of one row, and how many threads there were at most."""

    def __init__(self, folder: Path) -> None:
        self.threads = 1
        self._others = threads_now() - 1  # those of numerical libraries
        self._hash = hashlib.sha256()
        self._capture = folder / "first.pcapng"
        self._world: World | None = None
        self._runs = 0
        self._worlds = 0
        self._captures = False

    def before(self, world: World) -> None:
        """Called before a world runs."""
        if world is self._world:
            return
        self.finish()
        self._world, self._runs, self._captures = world, 0, False
        self._worlds += 1
        if self._worlds > CAPTURED:
            return
        with suppress(OSError, ValueError):  # no link, or the row captures it itself
            world.capture(0, 0, self._capture, 128)
            self._captures = True

    def after(self, world: World, end: str) -> None:
        """Called when a run of the world has ended."""
        self.threads = max(self.threads, threads_now() - self._others)
        self._runs += 1
        self._hash.update(f"{end} {world.now} {world.packets}".encode())
        if end != "time" or self._runs.bit_count() == 1:  # the runs 1, 2, 4 …, and the last
            self._see(world)

    def finish(self) -> str:
        """Return the hash of all that was given until now."""
        if self._world is not None:
            self._see(self._world)
        self._world = None
        return self._hash.hexdigest()

    def _see(self, world: World) -> None:
        self._hash.update(world.flows().tobytes())
        self._hash.update(world.links().tobytes())
        for host in range(min(world.hosts, HOSTS_SEEN)):
            self._hash.update(str(world.counters(host)).encode())
        self._hash.update(str(world.blocked()).encode())
        if self._captures:
            with self._capture.open("rb") as file:
                self._hash.update(file.read(CAPTURE_SEEN))


@contextmanager
def watched(count: int) -> Iterator[Watcher]:
    """All worlds that name no number of threads may have so many, and are watched."""
    usual, limit = threads.usual_threads, resource.getrlimit(resource.RLIMIT_FSIZE)
    with TemporaryDirectory() as folder:
        watcher = Watcher(Path(folder))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (CAPTURE_MOST, limit[1]))
            threads.usual_threads = lambda: count
            CheckedWorld.watcher = watcher
            yield watcher
        finally:
            CheckedWorld.watcher = None
            threads.usual_threads = usual
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
