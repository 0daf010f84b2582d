# SPDX-License-Identifier: Apache-2.0
"""The frames of TCP and of sockets on the PCIe link of a host with an inside: payload, headers."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.fabrics import finish
from tests.sim.inside_pair import InsideWorld
from tests.sim.test_inside_sockets import Sink
from verbena import sim
from verbena.sim.inside import TLPS, InsideCounters

SIZE = 200_000
MSS = 1460
WRITE, ASK, DATA = 24, 24, 20  # bytes of a PCIe transaction beside its data
UP, DOWN = 252, 253


def two_hosts(**settings: object) -> InsideWorld:
    world = InsideWorld(**settings)
    for _ in range(2):
        world.add_host()
    world.connect(0, 0, 1, 0, rate=100 * 10**9, delay=500_000)
    for host in range(2):
        world.inside(host, slices=100_000)
    return world


def check_bytes(world: InsideWorld) -> list[InsideCounters]:
    """A link has the bytes of payload and headers with those of transactions, and so have its
    slices. What one host has sent the other one has received."""
    seen = [world.insides[host].counters() for host in range(2)]
    for host, of in enumerate(seen):
        assert of.up.bytes == sum(size for _, size in of.up.tlps.values())
        assert of.down.bytes == sum(size for _, size in of.down.tlps.values())
        writes, written = of.up.tlps["write"]
        assert written == of.placed + of.headers[1] + WRITE * writes
        answers, data = of.down.tlps["data"]
        assert data == of.fetched + of.headers[0] + DATA * answers
        asks, asked = of.up.tlps["read"]
        assert asked == ASK * asks
        slices = world.insides[host].slices()
        for row, link in ((UP, of.up), (DOWN, of.down)):
            assert slices["bytes"][slices["row"] == row].sum() == link.bytes
    for one, other in (seen, seen[::-1]):
        assert one.fetched == other.placed
        assert one.headers[0] == other.headers[1]
    return seen


def test_a_flow_s_headers_and_acknowledgements_cross_the_link() -> None:
    world = two_hosts()
    world.add_flows(0, 1, SIZE, transport="tcp")
    finish(world)
    sender, receiver = check_bytes(world)
    assert (sender.fetched, receiver.placed) == (SIZE, SIZE)
    assert (receiver.fetched, sender.placed) == (0, 0)
    frames = world.links()["packets"]
    assert sender.headers[0] == 54 * frames[0]
    assert receiver.headers[0] == 54 * frames[1] > 0  # of acknowledgements


def test_a_stream_s_frames_cross_the_link() -> None:
    async def takes() -> None:
        done = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.read() == bytes(SIZE)
            writer.close()
            done.set_result(None)

        async with await asyncio.start_server(serve, "0.0.0.0", 80):
            await done
        await asyncio.sleep(1)

    async def gives() -> None:
        reader, writer = await asyncio.open_connection("h0", 80)
        writer.write(bytes(SIZE))
        writer.write_eof()
        await reader.read()
        writer.close()
        await asyncio.sleep(1)

    world = two_hosts(sockets="tcp")
    sim.run({"h0": takes, "h1": gives}, world)
    receiver, sender = check_bytes(world)
    assert receiver.placed >= SIZE
    assert receiver.copied == SIZE
    assert sender.headers[0] >= 54 * -(-SIZE // MSS)
    assert receiver.headers[0] >= 54


def test_fragments_of_datagrams_cross_the_link() -> None:
    async def takes() -> None:
        await asyncio.get_running_loop().create_datagram_endpoint(Sink, local_addr=("0.0.0.0", 9))
        await asyncio.sleep(2)

    async def gives() -> None:
        await asyncio.sleep(1)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            Sink, remote_addr=("h0", 9)
        )
        transport.sendto(bytes(3000))
        await asyncio.sleep(1)

    world = two_hosts(sockets="tcp")
    sim.run({"h0": takes, "h1": gives}, world)
    receiver, sender = check_bytes(world)
    assert sender.fetched == receiver.placed == 3000 + 8
    assert sender.headers == (3 * 34, 0)
    assert receiver.headers == (0, 3 * 34)


@pytest.mark.parametrize("framing", ["ethernet", "bare"])
def test_headers_are_on_the_link_where_frames_have_them(framing: str) -> None:
    world = two_hosts(framing=framing)
    world.add_flows(0, 1, SIZE, transport="tcp")
    finish(world)
    sender, receiver = check_bytes(world)
    assert bool(sender.headers[0]) is (framing == "ethernet")
    slices = world.insides[1].slices()
    answers = slices[(slices["row"] == DOWN) & (slices["what"] == TLPS.index("data"))]
    assert bool(len(answers)) is (framing == "ethernet")
    assert receiver.placed == SIZE
