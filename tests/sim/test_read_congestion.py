# SPDX-License-Identifier: Apache-2.0
"""Congestion and READs: who sends their data is slowed, in flows and in programs."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import CCT, DCQCN, LINK, MIB, MICROSECOND, CheckedWorld, star
from tests.sim.programs import called, calling, take_writes, write
from verbena import sim
from verbena.sim import World

PORT = 7471
READERS = 6
HPCC = {"kind": "hpcc", "base_rtt": 5 * MICROSECOND}
KINDS: dict[str, dict[str, Any]] = {"dcqcn": DCQCN, "cct": CCT, "hpcc": HPCC}
PAUSES = {"flow": "pauses", "stop": 48 << 10, "go": 24 << 10, "spare": 96 << 10}
ECN: dict[str, Any] = {"lanes": [{**PAUSES, "mark": (5_000, 200_000, 0.01)}]}
FECN: dict[str, Any] = {"lanes": [{"flow": "credits", "room": 32 << 10}], "fecn": 30_000}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "dcqcn": ("ethernet", ECN),
    "cct": ("infiniband", FECN),
    "hpcc": ("ethernet", ECN),
}


def incast(kind: str, operation: str, congestion: dict[str, Any] | None) -> tuple[float, float]:
    """Data of six hosts go to one: Gb/s, and the mean queue before it."""
    framing, switch = WAYS[kind]
    world = CheckedWorld(
        seed=1, mtu=1024, timeout=0, window=MIB, congestion=congestion, framing=framing
    )
    center = star(world, READERS + 1, **switch)
    ends = np.zeros(READERS, int), np.arange(1, READERS + 1)
    source, target = ends if operation == "read" else ends[::-1]
    world.add_flows(source, target, 1 << 40, message=1 << 16, depth=16, operation=operation)
    samples = world.sample(MICROSECOND, [(center, 0)])
    world.run(until=500 * MICROSECOND)
    before = world.flows()["done"].astype(float)
    world.run(until=2000 * MICROSECOND)
    flows = world.flows()
    assert (flows["notices"].min() > 0) == (congestion is not None and kind != "hpcc")
    rate = float((flows["done"] - before).sum()) * 8 / 1.5e6
    return rate, float(samples.data["bytes"][500:, 0].mean())


@pytest.mark.parametrize("kind", KINDS)
def test_the_data_of_reads_are_slowed_as_those_of_writes(kind: str) -> None:
    read, write = (incast(kind, operation, KINDS[kind]) for operation in ("read", "write"))
    assert read[0] == pytest.approx(write[0], rel=0.02)
    assert read[1] < 5_000
    assert incast(kind, "read", None)[1] > 50_000


def test_hpcc_fills_the_link_with_reads_to_its_target() -> None:
    """The target utilisation, of the payload, beside 42 bytes of telemetry."""
    rate, queue = incast("hpcc", "read", HPCC)
    assert rate == pytest.approx(95 * 1024 / (1024 + 12 + 62 + 42), rel=0.04)
    assert queue < 3 * 1140


def test_telemetry_of_reads_takes_room_on_the_way_back() -> None:
    """Of each packet of data a CNP tells, of 28 bytes in a frame of 70 more, and 42."""
    world = CheckedWorld(mtu=1024, congestion=HPCC)
    star(world, 2)
    world.add_flows(0, 1, 100 * 1024, operation="read")
    assert world.run() == "done"
    links = world.links()
    assert links["packets"][0] == 1 + 100
    assert links["bytes"][0] == (1 + 100) * (70 + 28 + 42)  # a READ request is as long
    flow = world.flows()[0]
    assert (flow["notices"], flow["resent"]) == (0, 0)


@pytest.mark.parametrize("depth", [1, 16])
def test_reads_both_ways_at_once_end(depth: int) -> None:
    """Each side answers and is answered, on lanes that may have no credits."""
    for kind, (framing, switch) in WAYS.items():
        world = CheckedWorld(seed=2, timeout=0, congestion=KINDS[kind], framing=framing)
        star(world, 5, **switch)
        source = np.repeat(np.arange(5), 4)
        target = (source + np.tile(np.arange(1, 5), 5)) % 5
        world.add_flows(source, target, MIB, message=1 << 17, depth=depth, operation="read")
        assert world.run() == "done"
        assert (world.flows()["state"] == 2).all()
        assert world.check(at_rest=True) is None


def test_what_waits_for_credits_does_not_wait_in_the_host() -> None:
    """A responder with a READ of 16 MiB has one packet before its port, as a writer has."""
    longest = []
    for operation in ("read", "write"):
        world = CheckedWorld(framing="infiniband", timeout=0)
        star(world, 3, lanes=[{"flow": "credits", "room": 16 << 10}])
        ends = {"read": (0, 1), "write": (1, 0)}[operation]
        world.add_flows(*ends, 16 * MIB, operation=operation)
        world.add_flows(2, 0, 16 * MIB)
        assert world.run() == "done"
        links = world.links()
        longest.append(int(links["queued_max"][2]))
        assert links["stalled"][2] > 0
    assert max(longest) < 2 * 4200


# ---- programs -----------------------------------------------------------------------------------


async def offer(port: int, data: bytes) -> None:
    async with called(port, len(data)) as end:
        memoryview(end.mr)[:] = data
        await end.tell_region()
        await end.wait_for_peer()


async def read(host: str, port: int, nbytes: int, pieces: int) -> float:
    """Reads the server's memory; the seconds that it took."""
    async with calling(host, port, nbytes) as end:
        addr, rkey = await end.region()
        begin = asyncio.get_running_loop().time()
        size = nbytes // pieces
        operations = [
            end.qp.read(end.mr, addr + at, rkey, at, size) for at in range(0, nbytes, size)
        ]
        for operation in operations:
            await operation
        took = asyncio.get_running_loop().time() - begin
        assert bytes(memoryview(end.mr)) == pattern(nbytes)
        await end.wait_for_peer()
        return took


def pattern(nbytes: int) -> bytes:
    return bytes(range(256)) * (nbytes // 256)


@pytest.mark.parametrize("operation", ["read", "write"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_is_slowed_as_a_flow_is(kind: str, operation: str) -> None:
    """One connection beside flows takes as long as a flow in its place would."""
    size, pieces = 2 * MIB, 16
    framing, switch = WAYS[kind]
    ends = (0, 1) if operation == "read" else (1, 0)
    others = np.arange(2, 7), np.zeros(5, int)
    took = []
    for as_program in (True, False):
        world = World(seed=1, congestion=KINDS[kind], framing=framing)
        star(world, 7, LINK, **switch)
        source, target = others[::-1] if operation == "read" else others
        more = {"message": size // pieces, "depth": 16, "operation": operation}
        world.add_flows(source, target, size, 20 * MICROSECOND, **more)
        if as_program:
            peer: Any
            mine: Any
            if operation == "read":
                peer, mine = offer(PORT, pattern(size)), read("h1", PORT, size, pieces)
            else:
                peer = take_writes(PORT, size)
                mine = write("h0", PORT, pattern(size), pieces)
            programs = {f"h{ends[1]}": peer, f"h{ends[0]}": mine}
            took.append(sim.run(programs, world).returned[f"h{ends[0]}"])
        else:
            world.add_flows(*ends, size, 40 * MICROSECOND, **more)
            world.run()
            flow = world.flows()[-1]
            took.append(float(flow["finish"] - flow["start"]) / 1e12)
        assert world.check() is None
    assert took[0] == pytest.approx(took[1], abs=1e-11)


def test_hpcc_keeps_the_queue_of_programs_short() -> None:
    """Writes of six hosts to one: without HPCC what they send waits before its port."""
    longest = []
    for congestion in (None, HPCC):
        world = World(seed=1, congestion=congestion)
        center = star(world, READERS + 1)
        samples = world.sample(MICROSECOND, [(center, 0)], start=100 * MICROSECOND)

        async def server() -> None:
            await asyncio.gather(*(take_writes(PORT + n, MIB) for n in range(READERS)))

        programs = {f"h{n + 1}": write("h0", PORT + n, pattern(MIB), 16) for n in range(READERS)}
        result = sim.run({"h0": server, **programs}, world)
        assert len(result.returned) == READERS + 1
        longest.append(float(samples.data["bytes"][:, 0].mean()))
    assert longest[1] < longest[0] / 10
