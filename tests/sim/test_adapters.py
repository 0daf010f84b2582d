# SPDX-License-Identifier: Apache-2.0
"""The adapter of a simulated host: its settings, and that flows and programs pay the same for it.

The same pattern is sent once as flows and once by verbs programs, and the links show the same
packets at the same picoseconds.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.sim.fabrics import CCT, DCQCN, GIGABIT, LINK, MIB, MICROSECOND, finish, star
from tests.sim.programs import called, calling, take_writes
from verbena import fabrics, sim, verbs
from verbena.sim import World, build

SENDERS, PIECES, PIECE = 3, 8, 64 << 10
START = 100 * MICROSECOND
PORT = 7000
PAUSES: dict[str, Any] = {"flow": "pauses", "stop": 48 << 10, "go": 24 << 10, "spare": 96 << 10}
MARK = (5_000, 100_000, 0.1)
LANES = {"lanes": [{**PAUSES, "mark": MARK}] * 2}
FECN = {"lanes": [{"flow": "credits", "room": 32 << 10}] * 2, "fecn": 10_000}
HPCC = {"kind": "hpcc", "base_rtt": 5 * MICROSECOND}
SLOW = {"doorbell": 300_000, "bus_rate": 60 * GIGABIT, "receive_latency": 200_000}
ALIKE = {"ack_bytes": 256 << 10}  # a program's adapter asks for acknowledgements as a live one does
# Keywords of World and of its switch, and of the flows.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}, {}),
    "read": ({}, {}, {"read": True}),
    "doorbell-and-bus": (SLOW, {}, {}),
    "bus-of-reads": (SLOW, {}, {"read": True}),
    "lanes": ({"framing": "infiniband"}, FECN, {"level": 1, "back_level": 1}),
    "lanes-and-bus": ({"framing": "infiniband", **SLOW}, FECN, {"level": 1, "back_level": 1}),
    "pauses": ({}, {"lanes": [PAUSES]}, {}),
    "dcqcn": ({"congestion": DCQCN}, LANES, {}),
    "dcqcn-of-reads": ({"congestion": DCQCN}, LANES, {"read": True}),
    "dcqcn-on-the-same-level": (
        {"congestion": DCQCN, "notice_level": None},
        LANES,
        {"level": 1, "back_level": 1},
    ),
    "dcqcn-and-bus": ({"congestion": DCQCN, **SLOW}, LANES, {}),
    "cct": ({"congestion": CCT, "framing": "infiniband"}, FECN, {}),
    "hpcc": ({"congestion": HPCC, "ack_bytes": 1}, LANES, {}),
    "hpcc-of-reads": ({"congestion": HPCC, "ack_bytes": 1}, LANES, {"read": True}),
}
Packet = tuple[int, int, int, bool]


def made(case: str, folder: Path) -> tuple[World, list[Path]]:
    """A star, in which the link of each host is captured."""
    keywords, switch, _ = CASES[case]
    world = World(seed=1, **(ALIKE | keywords))
    center = star(world, 1 + SENDERS, {**LINK, "rate": 40 * GIGABIT}, **switch)
    paths = [folder / f"{port}.pcapng" for port in range(1 + SENDERS)]
    for port, path in enumerate(paths):
        world.capture(center, port, path, 128)
    return world, paths


ERF_HEADER, LRH, GRH = 16, 8, 40


def ethernet_packet(frame: bytes) -> tuple[int, int, bool]:
    """The bytes that IPv6 adds, the opcode and the mark."""
    more = 20 if frame[12:14] == b"\x86\xdd" else 0
    return more, frame[42 + more], frame[15] >> (4 if more else 0) & 3 == 3


def infiniband_packet(frame: bytes) -> tuple[int, int, bool]:
    """The bytes that a GRH adds, the opcode and the mark, which is FECN."""
    more = GRH if frame[ERF_HEADER + 1] & 3 == 3 else 0
    bth = ERF_HEADER + LRH + more
    return more, frame[bth], frame[bth + 4] & 0x80 != 0


def packets(path: Path) -> list[Packet]:
    """The time, the length, the opcode and the mark of each packet of a capture.

    A program with link-local addresses has IPv6 in a capture, whose header is 20 bytes longer.
    """
    data, at, found = path.read_bytes(), 0, []
    read = ethernet_packet
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 1:  # an interface
            (link,) = struct.unpack_from("<H", data, at + 8)
            read = ethernet_packet if link == 1 else infiniband_packet
        if kind == 6:  # an enhanced packet block
            _, high, low, _, original = struct.unpack_from("<5I", data, at + 8)
            more, opcode, marked = read(data[at + 28 : at + length])
            found.append((high << 32 | low, original - more, opcode, marked))
        at += length
    return found


def by_programs(case: str, folder: Path) -> tuple[list[list[Packet]], int, list[int]]:
    """The packets of verbs programs, which post all requests of two connections at once.

    Also the time at which they post, and the times at which the last of their requests end.
    """
    keywords = CASES[case][2]
    world, paths = made(case, folder)
    posted, done = set(), [0] * SENDERS
    size, level = PIECES * PIECE, keywords.get("level", 0)

    async def serve(port: int) -> None:
        async with called(port, size, sl=level) as end:
            await end.tell_region()
            await end.wait_for_peer()

    async def server() -> None:
        await asyncio.gather(*(serve(PORT + number) for number in range(2 * SENDERS)))

    async def sender(number: int) -> None:
        ports = (PORT + 2 * number, PORT + 2 * number + 1)
        async with (
            calling("h0", ports[0], size, sl=level) as one,
            calling("h0", ports[1], size, sl=level) as other,
        ):
            regions = [await end.region() for end in (one, other)]
            await asyncio.sleep(START / 1e12 - asyncio.get_running_loop().time())
            posted.add(world.now)
            operations = []
            for end, (addr, rkey) in zip((one, other), regions, strict=True):
                post = end.qp.read if keywords.get("read") else end.qp.write
                for at in range(0, size, PIECE):
                    operations.append(post(end.mr, addr + at, rkey, at, PIECE))
            await asyncio.gather(*operations)
            done[number] = world.now
            for end in (one, other):
                await end.wait_for_peer()

    sim.run({"h0": server, **{f"h{n + 1}": sender(n) for n in range(SENDERS)}}, world)
    (when,) = posted
    return [packets(path) for path in paths], when, done


def by_flows(case: str, folder: Path, when: int) -> tuple[list[list[Packet]], list[int]]:
    world, paths = made(case, folder)
    hosts = [1 + number // 2 for number in range(2 * SENDERS)]
    size = PIECES * PIECE
    world.add_flows(hosts, 0, size, when, message=PIECE, depth=PIECES, **CASES[case][2])
    done = finish(world).flows()["finish"].reshape(SENDERS, 2).max(axis=1)
    return [packets(path) for path in paths], done.tolist()


@pytest.mark.parametrize("case", CASES)
def test_a_program_sends_the_packets_of_flows_at_the_same_picosecond(
    case: str, tmp_path: Path
) -> None:
    of_programs, when, ended = by_programs(case, tmp_path)
    of_flows, finished = by_flows(case, tmp_path, when)
    assert len(of_flows[0]) > 2 * SENDERS * PIECES * PIECE // 4096
    for port in range(1 + SENDERS):
        assert of_programs[port] == of_flows[port]
    assert ended == finished


# ---- settings of one host -----------------------------------------------------------------------


def ends(**adapter: Any) -> list[int]:
    """When flows of four hosts to others end; the third of the hosts has these settings."""
    world = World(timeout=8)
    center = world.add_switch(8)
    for port in range(8):
        node = world.add_host(**(adapter if port == 2 else {}))
        world.connect(node, 0, center, port, **LINK)
    world.set_routes(center, list(range(8)))
    world.add_flows([0, 1, 2, 3], [4, 5, 6, 7], MIB)
    return [int(at) for at in finish(world).flows()["finish"]]


def test_one_slow_host_is_among_fast_ones() -> None:
    fast = ends()
    assert len(set(fast)) == 1
    for adapter, later in (
        ({"bus_rate": 25 * GIGABIT}, 3 * MIB * 80),
        ({"doorbell": 700_000}, 700_000),
        ({"receive_latency": 900_000}, 900_000),  # of the acknowledgement
    ):
        slow = ends(**adapter)
        assert slow[:2] + slow[3:] == fast[:2] + fast[3:]
        assert slow[2] - fast[2] == pytest.approx(later, rel=0.03)


def test_a_host_may_ignore_congestion() -> None:
    """Of three senders the one without DCQCN takes more than its share."""

    def done(**adapter: Any) -> list[int]:
        world = World(seed=1, congestion=DCQCN)
        center = world.add_switch(4, **LANES)
        for port in range(4):
            node = world.add_host(**(adapter if port == 1 else {}))
            world.connect(node, 0, center, port, **LINK)
        world.set_routes(center, list(range(4)))
        world.add_flows([1, 2, 3], 0, 64 * MIB)
        world.run(until=2000 * MICROSECOND)
        flows = world.flows()
        assert flows["notices"].sum() > 0
        return [int(bytes_) for bytes_ in flows["done"]]

    even, greedy = done(), done(congestion=None)
    assert even[0] < sum(even) / 2
    assert greedy[0] > 4 * max(greedy[1:])


def test_a_fabric_gives_its_hosts_their_adapters_by_name() -> None:
    """For flows and for programs: h1 reads its memory slowly, and h2 does not."""
    fabric = fabrics.one_switch(3, rate="100GbE", delay_ns=1000)
    adapters = {"h1": {"bus_rate": 10 * GIGABIT}}
    world = World()
    build(world, fabrics.route(fabric), adapters=adapters)
    world.add_flows([1, 2], 0, MIB)
    of_flows = finish(world).flows()["finish"]
    assert of_flows[0] > 4 * of_flows[1]

    async def server() -> None:
        await asyncio.gather(*(take_writes(port, MIB) for port in (PORT, PORT + 1)))

    async def sender(port: int) -> float:
        async with calling("h0", port, MIB) as end:
            addr, rkey = await end.region()
            begin = asyncio.get_running_loop().time()
            await end.qp.write(end.mr, addr, rkey)
            took = asyncio.get_running_loop().time() - begin
            await end.wait_for_peer()
            return took

    programs = {"h0": server, "h1": sender(PORT), "h2": sender(PORT + 1)}
    took = sim.run(programs, fabric, adapters=adapters).returned
    assert took["h1"] > 4 * took["h2"]


def test_datagrams_of_a_program_have_a_doorbell_while_none_waits() -> None:
    """Of three that are posted at once, the first alone; and again after they have left."""

    async def program() -> list[float]:
        loop, took = asyncio.get_running_loop(), []
        with verbs.open_device() as ctx:
            pd, cq = ctx.alloc_pd(), ctx.create_cq(16)
            qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD)
            verbs.bring_up_ud(qp)
            mr = pd.alloc(4096, 15)
            ah = pd.create_ah(dgid=bytes(10) + bytes([255, 255, 10, 0, 0, 2]))
            for count in (1, 3):
                begin = loop.time()
                for _ in range(count):
                    qp.send(mr, 0, 1000, ah=ah, remote_qpn=5)
                found = 0
                while found < count:
                    found += len(cq.poll(16))
                    await asyncio.sleep(1e-9)
                took.append(loop.time() - begin)
        return took

    took = {}
    for doorbell in (0, 500_000):
        fabric = fabrics.one_switch(2, rate="100GbE", delay_ns=1000)
        returned = sim.run({"h0": program}, fabric, doorbell=doorbell).returned
        took[doorbell] = returned["h0"]
    for without, with_bell in zip(took[0], took[500_000], strict=True):
        assert with_bell - without == pytest.approx(0.5e-6, abs=5e-9)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"doorbell": -1}, ValueError, "doorbell is -1"),
        ({"bus_rate": "fast"}, ValueError, "bus_rate is 'fast'"),
        ({"notice_level": 16}, ValueError, "notice_level is 16"),
        ({"congestion": {"kind": "red"}}, ValueError, "congestion"),
        ({"congestion": HPCC}, ValueError, "hpcc is for all hosts of a world or for none"),
        ({"window": 4096}, TypeError, "unknown keyword window: there are bus_rate"),
    ],
)
def test_an_adapter_that_cannot_be_is_refused(
    given: dict[str, Any], error: type[Exception], text: str
) -> None:
    world = World()
    with pytest.raises(error, match=text):
        world.add_host(**given)
    assert world.hosts == 0
    routes = fabrics.route(fabrics.one_switch(2))
    with pytest.raises(error, match=rf"adapters\['h1'\]: .*{text}"):
        build(World(), routes, adapters={"h1": given})


def test_adapters_of_hosts_that_are_not_there_are_refused() -> None:
    routes = fabrics.route(fabrics.one_switch(2))
    refused: list[tuple[Any, type[Exception], str]] = [
        ({"h7": {}}, ValueError, "adapters: there is no host 'h7'"),
        ({"h1": 5}, TypeError, r"adapters\['h1'\] is 5"),
        ([1], TypeError, "adapters is "),
        ({"h1": {"framing": "bare"}}, ValueError, "framing is a keyword of its own"),
    ]
    for adapters, error, text in refused:
        with pytest.raises(error, match=text):
            build(World(), routes, adapters=adapters)
    with pytest.raises(ValueError, match="leave out adapters"):
        sim.run({}, World(), adapters={})
