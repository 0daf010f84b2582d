# SPDX-License-Identifier: Apache-2.0
"""The loop of simulated hosts calls programs in the order and at the times of asyncio's own loop.

The same programs run on both (``asyncio_loop``), on whatever version of Python runs the tests.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sim.asyncio_loop import AsyncioLoop
from tests.sim.fabrics import star
from tests.sim.programs import End, called, calling, echo, ping
from verbena import sim
from verbena.sim.loop import Loop

LOOPS = (Loop, AsyncioLoop)
US = 1e-6
Seen = list[tuple[str, int]]
Say = Callable[[str], None]


# ---- programs that only wait ---------------------------------------------------------------------


async def callbacks_and_timers(say: Say) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    timers = [loop.call_later(n * US, say, f"timer {n}") for n in (5, 3, 9, 1, 7)]
    timers[2].cancel()
    loop.call_soon(lambda: [say("soon"), loop.call_soon(say, "next turn"), timers[1].cancel()])
    dropped = loop.call_soon(say, "never")
    loop.call_soon(say, "after it")
    dropped.cancel()
    loop.call_at(loop.time() - 1, say, "late already")
    loop.call_later(0, say, "at once")
    loop.call_later(8 * US, done.set_result, None)
    await done
    for count in range(300):
        loop.call_later((500 + count) * US, say, "never").cancel()
    await asyncio.sleep(US)


async def timeouts_and_cancellation(say: Say) -> None:
    async def slow(name: str) -> str:
        try:
            await asyncio.sleep(50 * US)
        except asyncio.CancelledError:
            say(f"{name} is cancelled")
            await asyncio.sleep(0)
            raise
        return name

    for name, limit in (("a", 20 * US), ("b", 60 * US)):
        try:
            say(await asyncio.wait_for(slow(name), limit))
        except TimeoutError:
            say(f"{name} took too long")
    try:
        async with asyncio.timeout(7 * US):
            await slow("c")
    except TimeoutError:
        say("c took too long")
    task = asyncio.create_task(slow("d"))
    await asyncio.sleep(3 * US)
    task.cancel()
    shielded = asyncio.create_task(slow("e"))
    say(str(await asyncio.gather(task, asyncio.shield(shielded), return_exceptions=True)))


async def groups(say: Say) -> None:
    async def step(number: int, fails: bool = False) -> None:
        try:
            await asyncio.sleep(number * US)
            if fails:
                raise LookupError(number)
        finally:
            say(f"step {number} ends")

    try:
        async with asyncio.TaskGroup() as group:
            for number in (4, 2, 9, 7):
                group.create_task(step(number, fails=number == 7))
    except ExceptionGroup as errors:
        say(repr(errors.exceptions))
    for first in asyncio.as_completed([step(3), step(1), step(2)]):
        await first
        say("completed")
    tasks = [asyncio.create_task(step(n)) for n in (8, 6)]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    say(f"{len(done)} done, {len(left)} left")
    await asyncio.wait(left)


async def locks_and_queues(say: Say) -> None:
    event, lock, room = asyncio.Event(), asyncio.Lock(), asyncio.Condition()
    queue: asyncio.Queue[int] = asyncio.Queue(2)

    async def worker(name: str) -> None:
        await event.wait()
        async with lock:
            say(f"{name} has the lock")
            await asyncio.sleep(US)
        async with room:
            await room.wait_for(lambda: queue.qsize() < 2)
            say(f"{name} puts")
            queue.put_nowait(1)

    async def consumer() -> None:
        for _ in range(6):
            await queue.get()
            say("got one")
            await asyncio.sleep(0.3 * US)
            async with room:
                room.notify(1)

    workers = [asyncio.create_task(worker(str(n))) for n in range(6)]
    reader = asyncio.create_task(consumer())
    asyncio.get_running_loop().call_later(2 * US, event.set)
    await asyncio.gather(*workers, reader)


async def generators(say: Say) -> None:
    async def numbers(name: str) -> Any:
        try:
            for number in range(9):
                await asyncio.sleep(US)
                yield number
        finally:
            await asyncio.sleep(0)
            say(f"{name} is closed")

    async for number in numbers("left alone"):
        if number == 2:
            break
    say("left")
    await asyncio.sleep(US)
    kept = numbers("kept")
    say(str(await anext(kept)))
    asyncio.get_running_loop().kept = kept  # type: ignore[attr-defined]


PROGRAMS = (callbacks_and_timers, timeouts_and_cancellation, groups, locks_and_queues, generators)


def on(loop: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``sim.run`` use this loop."""
    monkeypatch.setattr(sys.modules["verbena.sim.run"], "Loop", loop)


def course(
    loop: type, program: Callable[[Say], Awaitable[None]], debug: bool, monkeypatch: Any
) -> Seen:
    on(loop, monkeypatch)
    world = sim.World()
    star(world, 2)
    seen: Seen = []

    async def main() -> None:
        asyncio.get_running_loop().set_debug(debug)
        await program(lambda what: seen.append((what, world.now)))

    sim.run({"h0": main}, world)
    return [*seen, ("end", world.now)]


@pytest.mark.parametrize("debug", [False, True], ids=["usual", "debug"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_takes_the_course_that_asyncio_gives_it(
    program: Callable[[Say], Awaitable[None]], debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (course(loop, program, debug, monkeypatch) for loop in LOOPS)
    assert ours == theirs
    assert len(ours) > 4


# ---- programs with packets -----------------------------------------------------------------------


async def stream(end: End, sends: bool) -> None:
    """Messages with several under way, some awaited with a limit that is too short."""
    await end.wait_for_peer()
    if not sends:
        posted = [end.qp.recv(end.mr) for _ in range(60)]
        await end.wait_for_peer()
        await asyncio.gather(*posted)
        return
    await end.wait_for_peer()
    for number in range(20):
        burst = [end.qp.send(end.mr, length=100 * (n + 1)) for n in range(3)]
        try:
            async with asyncio.timeout((0.1 + number) * 1.0003 * US):
                await asyncio.gather(*burst)
        except TimeoutError:
            await asyncio.sleep(number * 0.7001 * US)


async def streams(host: str, port: int) -> None:
    async with calling(host, port) as end:
        await stream(end, sends=True)


async def takes_streams(port: int) -> None:
    async with called(port) as end:
        await stream(end, sends=False)


def captures(loop: type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    on(loop, monkeypatch)
    world = sim.World(timeout=8)
    center = star(world, 4, {"rate": 10**11, "delay": 25_003, "bit_error_rate": 1e-6})
    paths = [folder / f"{loop.__name__}-{host}.pcapng" for host in range(4)]
    for port, path in enumerate(paths):
        world.capture(center, port, path)

    async def later(program: Any, seconds: float) -> Any:
        await asyncio.sleep(seconds)
        return await program

    result = sim.run(
        {
            "h0": echo(1, 50),
            "h1": later(ping("h0", 1, 50), 1.01 * US),
            "h2": takes_streams(2),
            "h3": later(streams("h2", 2), 2.37 * US),
        },
        world,
    )
    assert world.check() is None
    return [*(path.read_bytes() for path in paths), repr(result.finished).encode()]


def test_packets_are_those_of_asyncio_at_the_same_picoseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (captures(loop, tmp_path, monkeypatch) for loop in LOOPS)
    assert all(len(packets) > 10_000 for packets in ours[:4])
    assert ours == theirs
