# SPDX-License-Identifier: Apache-2.0
"""Load for a disk: ``measure`` keeps a number of commands under way, and says how fast they were.

`verbena disk bench` and the simulated study call it. Each completion submits the next command, in
the batch in which it came, so that no task and no future is needed for a command.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .commands import IoOpcode
from .disk import Disk
from .errors import CommandFailed, ConnectionLost
from .host_queue import LOST, HostQueue
from .numbers import byte_count, whole
from .status import status_of_wire

__all__ = ["Load", "LoadResult", "Pattern", "measure"]

_MOST_COMMANDS = 1 << 48
_GRACE = 1.0  # seconds in which the last commands of a load may end


class Pattern(Enum):
    """What a load does."""

    RANDOM_READ = "randread"
    READ = "read"
    RANDOM_WRITE = "randwrite"
    WRITE = "write"

    @property
    def opcode(self) -> IoOpcode:
        """The command."""
        writes = self in (Pattern.RANDOM_WRITE, Pattern.WRITE)
        return IoOpcode.WRITE if writes else IoOpcode.READ

    @property
    def is_random(self) -> bool:
        """Whether blocks are chosen at random."""
        return self in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE)


@dataclass(frozen=True)
class Load:
    """``depth`` commands of ``size`` bytes at a time, for ``seconds`` or ``commands``.

    Raises TypeError and ValueError.
    """

    pattern: Pattern = Pattern.RANDOM_READ
    size: int = 4096
    depth: int = 32
    seconds: float = 2.0
    commands: int | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", byte_count("size", self.size))
        object.__setattr__(self, "depth", whole("depth", self.depth, 1, _MOST_COMMANDS))
        if self.commands is not None:
            object.__setattr__(
                self, "commands", whole("commands", self.commands, 1, _MOST_COMMANDS)
            )


@dataclass(frozen=True)
class LoadResult:
    """What was measured: latencies in seconds, processor time of this process.

    ``unended`` commands were still under way _GRACE seconds after the load's time; they are not
    among ``commands``.
    """

    commands: int
    size: int
    seconds: float
    processor_seconds: float
    latencies: array[float]
    unended: int = 0

    @property
    def rate(self) -> float:
        """Commands in a second."""
        return self.commands / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes in a second."""
        return self.rate * self.size

    def latency(self, fraction: float) -> float:
        """Return a quantile of the latencies, in seconds."""
        if not self.latencies:
            return 0.0
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


class Runner:
    """A load that is under way."""

    def __init__(self, disk: Disk, load: Load, clock: Callable[[], float]) -> None:
        if load.size % disk.block_size or not 0 < load.size <= min(
            disk.size, disk.controller.most_bytes
        ):
            most = min(disk.size, disk.controller.most_bytes)
            raise ValueError(
                f"a command has whole blocks of {disk.block_size} bytes, {most} at most, and"
                f" not {load.size} bytes"
            )
        self.disk, self.load, self._clock = disk, load, clock
        self._count = load.size // disk.block_size
        self._places = disk.size // load.size
        self._choose = random.Random(load.seed).random  # randrange takes five times as long
        self._next = 0
        self._buffer = disk.buffer(load.size * load.depth)
        self.latencies = array("d")
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = 0
        self.commands = 0
        self.unended = 0
        self._deadline = 0.0

    def start(self, queues: list[HostQueue]) -> None:
        """Submit the first commands, on the queues in turn."""
        self._deadline = self._clock() + self.load.seconds
        self._left = self.load.depth
        for slot in range(self.load.depth):
            self._submit_on(queues[slot % len(queues)], slot)

    def _submit_on(self, queue: HostQueue, slot: int) -> None:
        """Have one place of the depth send commands, one after the other."""
        clock, latencies, submit = self._clock, self.latencies, queue.submit_blocks
        opcode, nsid = int(self.load.pattern.opcode), self.disk.nsid
        size, count, key = self.load.size, self._count, self._buffer.rkey
        address = self._buffer.addr + slot * size
        place_of = self._random_place if self.load.pattern.is_random else self._next_place
        limit = self.load.commands
        begun = clock()

        def done(result: int, status: int) -> None:
            nonlocal begun
            if status:
                self._fail(status)
                return
            if self.unended:  # the result was made without it
                self._left -= 1
                return
            now = clock()
            latencies.append(now - begun)
            self.commands += 1
            if now < self._deadline if limit is None else self.commands < limit:
                begun = now
                submit(opcode, nsid, address, size, key, place_of() * count, count, 0, done)
            else:
                self._stop_one()

        submit(opcode, nsid, address, size, key, place_of() * count, count, 0, done)

    def _random_place(self) -> int:
        return int(self._choose() * self._places)

    def _next_place(self) -> int:
        place = self._next
        self._next = (place + 1) % self._places
        return place

    def give_up(self) -> None:
        """End though commands are under way: their disk is too slow for the time of the load."""
        if not self.ended.done():
            self.unended = self._left
            self.ended.set_result(None)

    def _stop_one(self) -> None:
        self._left -= 1
        if not self._left and not self.ended.done():
            self.ended.set_result(None)

    def _fail(self, status: int) -> None:
        self._left -= 1
        if self.ended.done():
            return
        if status == LOST:
            self.ended.set_exception(ConnectionLost("the connection was lost under load"))
        else:
            self.ended.set_exception(CommandFailed("the load", *status_of_wire(status)))

    def close(self) -> None:
        """Let the buffer go, unless commands still use it."""
        if not self._left:
            self._buffer.close()


async def measure(disk: Disk, load: Load, clock: Callable[[], float] | None = None) -> LoadResult:
    """Put a load on a disk, and return how fast it was. Raises NvmeError, ValueError.

    ``clock`` is that of a simulated host.
    """
    now = clock or time.perf_counter
    runner = Runner(disk, load, now)
    begun, used = now(), time.process_time()  # os.times counts hundredths of a second
    limit = None
    try:
        runner.start(disk.controller.queues)
        if load.commands is None:
            loop = asyncio.get_running_loop()
            limit = loop.call_later(load.seconds + _GRACE, runner.give_up)
        await runner.ended
        seconds = now() - begun
    finally:
        if limit is not None:
            limit.cancel()
        runner.close()
    return LoadResult(
        runner.commands,
        load.size,
        seconds,
        time.process_time() - used,
        runner.latencies,
        runner.unended,
    )
