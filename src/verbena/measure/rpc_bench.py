# SPDX-License-Identifier: Apache-2.0
"""Measures calls: the strategies of verbena.rpc against each other and against other libraries.

verbena.cli.bench calls ``measure_live``, which has a server process for each contender on one core
and the client on another, and ``measure_simulated``. Contenders take turns in short rounds, so that
all see the same machine; the median of the best round is shown, since load only adds to it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from verbena import fabrics, rpc, sim
from verbena.measure.cores import Cores, choose, pinned
from verbena.measure.rpc_peers import Call, Measured, caller_of, missing_module

__all__ = [
    *(
        "CLIENTS",
        "Contender",
        "Part",
        "RpcMeasurement",
        "SIMULATED_WAYS",
        "contenders",
        "crossover",
    ),
    *("crowds", "measure_live", "measure_simulated", "responders", "winners"),
]

_ROUND = 0.06  # seconds
_LEAST = 5  # calls of a round
_WARM = 3
CLIENTS = (1, 4, 16)
"""How many clients call at once where their number is what is measured."""


class Part(StrEnum):
    """What is measured of a call."""

    REQUESTS = "requests"  # of several sizes
    RESPONSES = "responses"  # of several sizes
    CLIENTS = "clients"  # requests of 64 bytes, of several clients at once


@dataclass(frozen=True)
class Contender:
    """Who is measured, by a name: the server's process, the client's options, and what it asks."""

    name: str
    server: tuple[str, ...]
    kind: str = "verbena"
    request: str = "auto"
    spin: float | None = None
    largest: int = 1 << 40
    response: str = "auto"  # "write": the client names memory with each request
    part: Part = Part.REQUESTS

    def options(self) -> Any:
        """Return the options of ``rpc.connect``."""
        return {"strategies": rpc.Strategies(self.request, self.response), "spin": self.spin}


@dataclass
class RpcMeasurement:
    """Microseconds of a call: of each round, by contender and size (or number of clients)."""

    rounds: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    cores: Cores | None = None

    def best(self, name: str, size: int) -> float | None:
        """Return the median of the best round."""
        found = self.rounds.get((name, size))
        return min(found) if found else None

    def known(self, names: list[str], size: int) -> dict[str, float]:
        """Return what ``best`` says of those names that were measured with a size."""
        measured = {name: self.best(name, size) for name in names}
        return {name: value for name, value in measured.items() if value is not None}

    def usual(self, name: str, size: int) -> float | None:
        """Return the median over the rounds."""
        found = self.rounds.get((name, size))
        return statistics.median(found) if found else None


def contenders() -> list[Contender]:
    """Return all that can be measured, in the order in which they are shown."""
    polled = ("verbena",)
    return [
        Contender("default", polled),
        Contender("inline", polled, request="inline"),
        Contender("ring", polled, request="ring", largest=4000),
        Contender("rendezvous", polled, request="rendezvous"),
        Contender("datagram", polled, request="datagram", largest=200),
        Contender("woken", ("verbena woken",), spin=0.0),
        Contender("woken, uvloop", ("verbena woken uvloop",), "verbena uvloop", spin=0.0),
        Contender("asyncio", ("asyncio",), "asyncio"),
        Contender("uvloop", ("uvloop",), "uvloop"),
        Contender("ZeroMQ", ("ZeroMQ",), "ZeroMQ"),
        Contender("gRPC", ("gRPC",), "gRPC"),
    ]


def responders() -> list[Contender]:
    """Return the forms of a response, which are measured with requests of a few bytes."""
    part = Part.RESPONSES
    return [
        Contender("default", ("verbena",), part=part),
        Contender("inline", ("verbena", "inline"), part=part),
        Contender("write", ("verbena", "write"), response="write", part=part),
        Contender("rendezvous", ("verbena", "rendezvous"), part=part),
    ]


def crowds() -> list[Contender]:
    """Return the ways in which a server has receives, which are measured with several clients."""
    return [
        Contender(each, ("verbena", "auto", each), part=Part.CLIENTS) for each in ("shared", "own")
    ]


# ---- on this machine -----------------------------------------------------------------------------


@contextmanager
def _server(words: tuple[str, ...], core: int) -> Iterator[int]:
    """Start a server's process on a core; its port."""
    command = [sys.executable, "-m", "verbena.measure.rpc_peers", *words]
    with pinned(core):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if not said:
            raise OSError(f"the server of {words[0]} did not start")
        yield int(said)
    finally:
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


async def _round(call: Any, data: bytes | int, seconds: float) -> float:
    """Return the median time of a call in µs, over so many seconds."""
    for _ in range(_WARM):
        await call(data)
    times = []
    end = time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        await call(data)
        now = time.perf_counter()
        times.append(now - begin)
        if now > end and len(times) >= _LEAST:
            return statistics.median(times) * 1e6


async def _rounds(
    who: Contender, port: int, sizes: list[int], seconds: float, result: RpcMeasurement
) -> None:
    if who.part is Part.CLIENTS:
        await _crowd_rounds(who, port, sizes, seconds, result)
        return
    is_answer = who.part is Part.RESPONSES
    async with caller_of(who.kind.split()[0], port, who.options(), is_answer) as call:
        for size in sizes:
            if size <= who.largest:
                taken = await _round(call, size if is_answer else bytes(size), seconds)
                result.rounds.setdefault((who.name, size), []).append(taken)


async def _crowd_rounds(
    who: Contender, port: int, numbers: list[int], seconds: float, result: RpcMeasurement
) -> None:
    """As `_rounds`, for numbers of clients."""
    calls: list[Call] = []
    async with AsyncExitStack() as stack:
        for number in sorted(numbers):
            while len(calls) < number:
                made = caller_of(who.kind, port, who.options())
                calls.append(await stack.enter_async_context(made))
            taken = await _crowd_round(calls, seconds)
            result.rounds.setdefault((who.name, number), []).append(taken)


async def _crowd_round(calls: list[Call], seconds: float) -> float:
    """Return the µs from one response to the next while all clients call, each one at a time."""
    data = bytes(64)
    for call in calls:
        await call(data)
    begin = time.perf_counter()

    async def client(call: Call) -> int:
        done = 0
        while done < _LEAST or time.perf_counter() < begin + seconds:
            await call(data)
            done += 1
        return done

    done = await asyncio.gather(*map(client, calls))
    return (time.perf_counter() - begin) / sum(done) * 1e6


def _run(who: Contender, work: Any) -> None:
    if "uvloop" not in who.kind:
        asyncio.run(work)
        return
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def measure_live(
    sizes: list[int],
    rounds: int,
    chosen: list[Contender],
    progress: Callable[[str], None],
    seconds: float = _ROUND,
) -> RpcMeasurement:
    """Measure contenders in turn; of ``crowds()``, ``sizes`` are numbers of clients.

    Raises OSError when a server does not start.
    """
    result = RpcMeasurement(cores=choose())
    cores = result.cores
    assert cores is not None
    before = os.sched_getaffinity(0)
    with ExitStack() as stack:
        ports: dict[tuple[str, ...], int] = {}
        able = []
        for who in chosen:
            why = missing_module("uvloop" if "uvloop" in who.kind else who.kind)
            if why is not None:
                result.skipped[who.name] = why
                continue
            able.append(who)
            if who.server not in ports:
                ports[who.server] = stack.enter_context(_server(who.server, cores.second))
        os.sched_setaffinity(0, {cores.first})
        stack.callback(os.sched_setaffinity, 0, before)
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for who in able:
                _run(who, _rounds(who, ports[who.server], sizes, seconds, result))
    return result


# ---- what it means -------------------------------------------------------------------------------


def winners(result: RpcMeasurement, sizes: list[int], names: list[str]) -> dict[int, str]:
    """Return who is the fastest of some, by size."""
    found = {}
    for size in sizes:
        known = result.known(names, size)
        if known:
            found[size] = min(known, key=lambda name: known[name])
    return found


def crossover(times: dict[str, dict[int, float]], first: str, second: str) -> int | None:
    """Return the least size from which on ``second`` is not slower than ``first``."""
    since = None
    for size in sorted(set(times[first]) & set(times[second])):
        if times[second][size] > times[first][size]:
            since = None
        elif since is None:
            since = size
    return since


# ---- in a simulated fabric -----------------------------------------------------------------------

SIMULATED_WAYS = ("inline", "ring", "rendezvous", "datagram")


def measure_simulated(
    sizes: list[int], length_m: float, loaded: bool, calls: int = 3
) -> dict[str, dict[int, float]]:
    """Return µs of virtual time of a call, by strategy and size, over cables of a length.

    ``loaded``: another host sends requests of 1 MiB to the same server all the while.
    """
    times: dict[str, dict[int, float]] = {}
    for way in SIMULATED_WAYS:
        fabric = fabrics.one_switch(3, rate="100GbE", length_m=length_m)
        times[way] = _simulated(fabric, way, sizes, loaded, calls)
    return times


def _simulated(
    fabric: Any, way: str, sizes: list[int], loaded: bool, calls: int
) -> dict[int, float]:
    over = False

    async def serve() -> None:
        async with rpc.serve(Measured(), ":7174") as server:
            await server.wait_closed()

    async def load() -> None:
        async with rpc.connect("h0:7174") as client:
            while not over:
                await asyncio.gather(*(client.head(bytes(1 << 20)) for _ in range(4)))

    async def ask() -> dict[int, float]:
        nonlocal over
        loop = asyncio.get_running_loop()
        found: dict[int, float] = {}
        options: Any = {"strategies": rpc.Strategies(way)}
        async with rpc.connect("h0:7174", **options) as client:
            await asyncio.sleep(1e-3)  # the load has begun
            for size in sizes:
                if (way == "ring" and size > 4000) or (way == "datagram" and size > 200):
                    continue
                await client.head(bytes(size))
                begin = loop.time()
                for _ in range(calls):
                    await client.head(bytes(size))
                found[size] = (loop.time() - begin) / calls * 1e6
        over = True
        return found

    programs: Any = {"h0": serve, "h1": ask}
    background = {"h0"}
    if loaded:
        programs["h2"] = load
        background.add("h2")
    found: dict[int, float] = sim.run(programs, fabric, background=background).returned["h1"]
    return found
