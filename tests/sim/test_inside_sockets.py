# SPDX-License-Identifier: Apache-2.0
"""Programs on hosts with an inside pay for what their TCP and UDP sockets do."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import pytest

from verbena import sim
from verbena.host.costs import Costs
from verbena.host.tcp_path import HEADERS, TcpPath
from verbena.sim import World
from verbena.sim.inside import Inside, InsideCounters

GBPS = 10**9
MIB = 1 << 20
NAMES = {"hard_irq": "interrupt"}  # of a cost of TcpPath, in the counters of an inside
ONE_BURST = {"initial_window": 64, "jitter": 0}


def pair(
    inside: dict[str, Any] | None, rate: int = 100 * GBPS, **settings: Any
) -> tuple[World, list[Inside]]:
    """Two hosts and a cable; ``inside`` of both, unless it is None."""
    world = World(seed=1, sockets="tcp", **settings)
    for _ in range(2):
        world.add_host()
    world.connect(0, 0, 1, 0, rate=rate, delay=500_000)
    return world, [] if inside is None else [world.inside(h, **inside) for h in ("h0", "h1")]


def now() -> int:
    return round(asyncio.get_running_loop().time() * 1e12)


def spent(insides: list[Inside]) -> list[InsideCounters]:
    return [inside.counters() for inside in insides]


def difference(before: InsideCounters, after: InsideCounters) -> dict[str, int]:
    """Cycles between two moments, without the costs that were not used."""
    costs = {name: cycles - before.cycles.get(name, 0) for name, cycles in after.cycles.items()}
    return {name: cycles for name, cycles in costs.items() if cycles}


def expected(cycles: Mapping[str, float]) -> dict[str, int]:
    """A ledger of TcpPath by the names of an inside."""
    return {NAMES.get(name, name): round(one) for name, one in cycles.items() if one}


Moments = list[list[InsideCounters]]


def message(
    size: int, inside: dict[str, Any] | None, **settings: Any
) -> tuple[dict[str, Any], Moments, list[Inside]]:
    """A connection rests, and then h1 sends so many bytes to h0. Returns the times in ps at which
    h1 wrote and h0 had all, the counters before and after, and the insides."""
    world, insides = pair(inside, **settings)
    moments: Moments = []

    async def server() -> int:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(size)
            done.set_result(now())
            assert await reader.read() == b""
            writer.close()

        async with await asyncio.start_server(serve, "0.0.0.0", 80, limit=4 * MIB):
            return await done

    async def client() -> tuple[int, int]:
        began = now()
        _, writer = await asyncio.open_connection("h0", 80)
        connected = now() - began
        await asyncio.sleep(1)
        moments.append(spent(insides))
        wrote = now()
        writer.write(bytes(size))
        await asyncio.sleep(1)
        moments.append(spent(insides))
        writer.close()
        return connected, wrote

    result = sim.run({"h0": server, "h1": client}, world)
    connected, wrote = result.returned["h1"]
    took = result.returned["h0"] - wrote
    return {"connected": connected, "took": took}, moments, insides


# ---- cycles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 1000, 65_500])
@pytest.mark.parametrize("joins", [True, False])
def test_a_message_costs_what_the_table_of_tcp_says(size: int, joins: bool) -> None:
    """All frames come behind one moderated interrupt, and the receiver sleeps."""
    inside = {
        "interrupts": {"time": "100 us"},
        "kernel": {"tso": joins, "gro": joins},
        "cpu": {"ghz": 3.0, "syscall": 700},
    }
    _, (before, after), _ = message(size, inside, tcp=ONE_BURST)
    mss = 1460
    path = TcpPath(mss + HEADERS, joins, joins, 3.0, wakes=True, costs=Costs(syscall=700))
    receiver = difference(before[0], after[0])
    assert receiver == expected(path.receiver(size).cycles)
    sender = difference(before[1], after[1])
    table = expected(path.sender(size).cycles)
    table["ack"] = 800  # one delayed acknowledgement, or one for all: the sender takes it once
    assert sender == table
    for here, there in zip(before, after, strict=True):
        assert there.interrupts == here.interrupts + 1
        assert there.copied - here.copied == size
        assert there.busy + there.spinning + there.idle == there.elapsed * there.cores
    frames = path.frames(size)
    assert after[0].merged - before[0].merged == frames - 1


def test_a_large_write_pays_for_each_segment_and_each_read() -> None:
    _, (before, after), _ = message(MIB, {})
    sender, receiver = difference(before[1], after[1]), difference(before[0], after[0])
    assert (sender["syscall"], sender["segment_out"]) == (1000, 16 * 600)
    assert (sender["skb"], sender["doorbell"]) == (16 * 400, 16 * 100)
    assert sender["copy_l3"] == round(0.2 * MIB)
    missed = round(0.4 * MIB)
    assert receiver["copy_memory"] == round(0.5 * missed)
    assert receiver["copy_l3"] == round(0.2 * (MIB - missed))
    assert receiver["page"] == 400 * 256
    frames = receiver["frame_in"] // 900
    assert frames >= -(-MIB // 1460)
    assert receiver["gro_frame"] == 150 * frames
    raised = after[0].interrupts - before[0].interrupts
    assert receiver["interrupt"] == 1500 * raised
    assert raised + after[0].merged - before[0].merged == frames
    assert 1 <= raised < frames
    assert after[0].copied - before[0].copied == MIB


def test_busy_and_idle_time_are_all_time_and_slices_name_the_costs() -> None:
    world_times, _, insides = message(100_000, {"slices": 10_000})
    assert world_times["took"] > 0
    for inside in insides:
        seen, slices = inside.counters(), inside.slices()
        assert seen.busy + seen.idle == seen.elapsed
        cores = slices[(slices["row"] == 0) & (slices["at"] < seen.elapsed)]
        assert (cores["at"][1:] >= cores["end"][:-1]).all()  # a core does one thing at a time
        took: dict[str, int] = {}
        for one in cores:
            name = inside.costs[one["what"]]
            took[name] = took.get(name, 0) + min(int(one["end"]), seen.elapsed) - int(one["at"])
        assert sum(took.values()) == seen.busy
        for name in ("copy_l3", "frame_in"):
            cycles = seen.cycles.get(name, 0)
            assert took.get(name, 0) == pytest.approx(cycles * 1000 / 3, abs=100)
        lines = inside.printed_costs()
        assert "for each segment (with TSO: of up to 64 KiB); an order of magnitude" in lines
    assert insides[0].costs.index("syscall") == 5


# ---- times ---------------------------------------------------------------------------------------

FREE = dict.fromkeys(("interrupt", "wakeup", "syscall", "doorbell"), 0)
FREE_KERNEL = dict.fromkeys(
    ("copy_l3", "copy_memory", "segment_out", "segment_in", "gro_frame", "frame_in", "page", "ack",
     "skb", "softirq_poll", "softirq_packet"), 0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "connected", "took"), [(100, 1_015_680, 514_240), (MIB, 1_015_680, 88_994_840)]
)
def test_hosts_without_an_inside_are_as_fast_as_before(
    size: int, connected: int, took: int
) -> None:
    times, _, _ = message(size, None)
    assert times == {"connected": connected, "took": took}


def test_a_slow_processor_makes_a_stream_slower_than_the_wire() -> None:
    rates = []
    for ghz in (0.5, 1.0, 2.0):
        times, (before, after), _ = message(4 * MIB, {"cpu": {"ghz": ghz}})
        rates.append(4 * MIB * 8000 / times["took"])
        cycles = sum(difference(before[0], after[0]).values())
        assert times["took"] > 0.95 * cycles * 1000 / ghz  # the receiver's core is the bottleneck
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.05)
    assert rates[0] < rates[1] < rates[2] < 50


def test_a_free_processor_leaves_link_and_interrupt() -> None:
    free, _, _ = message(100, {"cpu": FREE, "kernel": FREE_KERNEL})
    paid, (before, after), _ = message(100, {})
    plain, _, _ = message(100, None)
    assert free["took"] - plain["took"] == pytest.approx(1_350_000, rel=0.05)  # 3/2 round trips
    sender = sum(difference(before[1], after[1]).values()) - 1500 - 500 - 800  # the acknowledgement
    cycles = sender + sum(difference(before[0], after[0]).values())
    assert paid["took"] - free["took"] == pytest.approx(cycles * 1000 / 3, rel=0.01)
    assert paid["connected"] > free["connected"] > plain["connected"]


def test_a_slow_receiver_closes_its_window() -> None:
    """What the processor has not read is in the window, so the sender waits for it."""
    times, (before, after), _ = message(
        MIB, {"cpu": {"ghz": 0.5}}, tcp={"window": 64 << 10, "jitter": 0}
    )
    cycles = sum(difference(before[0], after[0]).values())
    assert times["took"] > cycles * 2000 * 0.9
    assert difference(before[1], after[1])["syscall"] > 1000 * 8  # the send buffer was full


def test_moderated_interrupts_merge_frames_and_come_later() -> None:
    at_once, (before, after), _ = message(200_000, {"cpu": {"ghz": 30.0}})
    raised = after[0].interrupts - before[0].interrupts
    late, (before, after), _ = message(
        200_000, {"cpu": {"ghz": 30.0}, "interrupts": {"time": "50 us"}}
    )
    assert after[0].interrupts - before[0].interrupts < raised
    assert late["took"] > at_once["took"] + 20_000_000
    _, (before, after), _ = message(
        14_600, {"interrupts": {"time": "1 ms", "packets": 5}}, tcp=ONE_BURST
    )
    assert after[0].interrupts - before[0].interrupts in (1, 2)


def test_a_program_that_computes_delays_its_socket() -> None:
    """The core has one thing at a time, whoever asks for it."""
    world, _ = pair({})

    async def server() -> list[int]:
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(1)
            writer.write(b"a")
            begun = now()
            await sim.charge("think", us=100)
            assert await reader.readexactly(1) == b"2"
            done.set_result([begun, now()])
            writer.close()

        async with await asyncio.start_server(serve, "0.0.0.0", 80):
            return await done

    async def client() -> None:
        reader, writer = await asyncio.open_connection("h0", 80)
        writer.write(b"1")
        await reader.readexactly(1)
        writer.write(b"2")
        await asyncio.sleep(1)
        writer.close()

    result = sim.run({"h0": server, "h1": client}, world)
    begun, ended = result.returned["h0"]
    assert ended - begun > 100_000_000


# ---- datagrams -----------------------------------------------------------------------------------


class Sink(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.came: list[tuple[int, bytes]] = []
        self.errors: list[Exception] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.came.append((now(), data))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)


def datagrams(
    sizes: list[int], inside: dict[str, Any] | None, port: int = 9
) -> tuple[Sink, Sink, int, list[Inside]]:
    """h1 sends datagrams to h0's port 9 at once, or to another one. Returns both ends, the time at
    which h1 sent, and the insides."""
    world, insides = pair(inside)
    sinks = Sink(), Sink()
    sent: list[int] = []

    async def server() -> None:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: sinks[0], local_addr=("0.0.0.0", 9)
        )
        await asyncio.sleep(2)
        transport.close()

    async def client() -> None:
        await asyncio.sleep(0.5)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: sinks[1], remote_addr=("h0", port)
        )
        sent.append(now())
        for size in sizes:
            transport.sendto(bytes(size))
        await asyncio.sleep(1)
        transport.close()

    sim.run({"h0": server, "h1": client}, world)
    return *sinks, sent[0], insides


def test_a_datagram_pays_by_its_fragments() -> None:
    sink, _, sent, insides = datagrams([3000], {})
    cycles = [
        {name: one for name, one in inside.counters().cycles.items() if one} for inside in insides
    ]
    assert cycles[1] == {
        "syscall": 1000, "copy_l3": 600, "skb": 3 * 400, "segment_out": 3 * 600, "doorbell": 300,
    }  # fmt: skip
    assert cycles[0] == {
        "interrupt": 1500, "softirq_poll": 500, "frame_in": 3 * 900, "softirq_packet": 3 * 2000,
        "page": 400, "skb": 400, "segment_in": 2000, "wakeup": 4500, "syscall": 1000,
        "copy_memory": 600, "copy_l3": 360,
    }  # fmt: skip
    assert insides[0].counters().interrupts == 1
    plain, _, plain_sent, _ = datagrams([3000], None)
    assert plain.came[0][1] == sink.came[0][1] == bytes(3000)
    charged = sum(sum(one.values()) for one in cycles) * 1000 / 3
    took = sink.came[0][0] - sent - (plain.came[0][0] - plain_sent)
    assert charged < took < charged + 3_000_000  # and the link's round trips


def test_datagrams_without_an_inside_come_as_before() -> None:
    plain, _, sent, _ = datagrams([100, 3000], None)
    assert [at - sent for at, _ in plain.came] == [513_280, 767_840]


def test_many_datagrams_keep_their_order_and_the_pace_of_the_processor() -> None:
    sizes = [100 + number for number in range(50)]
    sink, _, sent, insides = datagrams(sizes, {"cpu": {"ghz": 1.0}})
    assert [len(data) for _, data in sink.came] == sizes
    sender = insides[1].counters()
    each = sum(sender.cycles.values()) / 50
    assert sink.came[-1][0] - sent > 50 * each * 1000
    assert insides[0].counters().interrupts + insides[0].counters().merged == 50


class Refused(asyncio.DatagramProtocol):
    """Notes its errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error_received(self, exc: Exception) -> None:
        self.errors.append(str(exc))


def test_a_host_reaches_itself_for_nothing_and_unknown_names_are_refused() -> None:
    sink = Sink()

    async def program() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: sink, local_addr=("0.0.0.0", 9))
        transport, sender = await loop.create_datagram_endpoint(Refused, local_addr=("0.0.0.0", 10))
        transport.sendto(b"far", ("h1", 9))
        transport.sendto(b"near", ("localhost", 9))
        transport.sendto(b"lost", ("h7", 9))
        assert len(sender.errors) == 1
        assert "no host" in sender.errors[0]
        await asyncio.sleep(1)

    world, insides = pair({})
    sim.run({"h0": program}, world)
    assert [data for _, data in sink.came] == [b"near"]
    assert insides[0].counters().copied == 3


def test_a_port_without_a_socket_answers_after_both_processors() -> None:
    _, sink, _, insides = datagrams([10], {}, port=10)
    assert [type(error) for error in sink.errors] == [ConnectionRefusedError]
    seen = insides[0].counters().cycles
    assert (seen["segment_out"], seen["segment_in"]) == (600, 2000)
    assert (seen["wakeup"], seen["syscall"]) == (0, 0)


# ---- ends of connections -------------------------------------------------------------------------


def with_pair(
    server: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]],
    client: Callable[[], Awaitable[Any]],
    **settings: Any,
) -> Any:
    """What the client returns; ``server`` is called for its connections."""
    world, _ = pair({}, **settings)

    async def listens() -> None:
        await (await asyncio.start_server(server, "0.0.0.0", 80)).serve_forever()

    result = sim.run({"h0": listens, "h1": client}, world, background=["h0"])
    return result.returned["h1"]


def test_an_abort_resets_the_peer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        now = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        writer.transport.abort()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("h0", 80)
        writer.write(b"abc")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("h0", 81)

    with_pair(serve, client)


def test_a_refused_connection_costs_its_packets() -> None:
    async def client() -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("h0", 81)

    world, insides = pair({})
    sim.run({"h1": client}, world)
    refuses, asks = (inside.counters().cycles for inside in insides)
    assert (refuses["syscall"], asks["syscall"]) == (0, 1000)
    for one in (refuses, asks):
        assert (one["segment_out"], one["segment_in"], one["interrupt"]) == (600, 2000, 1500)


def test_one_side_alone_may_have_an_inside() -> None:
    world, _ = pair(None)
    inside = world.inside("h0")

    async def server() -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read())
            writer.close()
            await writer.wait_closed()
            done.set_result(None)

        async with await asyncio.start_server(serve, "0.0.0.0", 80):
            await done

    async def client() -> bytes:
        reader, writer = await asyncio.open_connection("h0", 80)
        writer.write(bytes(range(256)) * 1000)
        writer.write_eof()
        return await reader.read()

    result = sim.run({"h0": server, "h1": client}, world)
    assert result.returned["h1"] == bytes(range(256)) * 1000
    assert inside.counters().copied == 2 * 256_000


def test_bytes_arrive_whole_and_in_order_over_a_lossy_link() -> None:
    world = World(seed=3, sockets="tcp", tcp={"jitter": 0})
    for _ in range(2):
        world.add_host()
    world.connect(0, 0, 1, 0, rate=10 * GBPS, delay=10**8, bit_error_rate=1e-6)
    insides = [world.inside(host, kernel={"gro": False}) for host in ("h0", "h1")]
    data = bytes(number * number % 251 for number in range(300_000))

    async def server() -> bytes:
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            done.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(serve, "0.0.0.0", 80):
            return await done

    async def client() -> None:
        _, writer = await asyncio.open_connection("h0", 80)
        for begin in range(0, len(data), 7001):
            writer.write(data[begin : begin + 7001])
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    assert sim.run({"h0": server, "h1": client}, world).returned["h0"] == data
    for seen in spent(insides):
        assert seen.busy + seen.idle == seen.elapsed


@pytest.mark.parametrize("seed", range(12))
def test_any_programs_get_their_bytes_and_no_time_is_lost(seed: int) -> None:
    draw = Random(seed)
    window, rate = draw.choice([20_000, 1 << 20]), draw.choice([1, 10, 100]) * GBPS
    world = World(seed=seed, sockets="tcp", tcp={"jitter": 0, "window": window})
    for _ in range(2):
        world.add_host()
    errors = draw.choice([0, 1e-7, 1e-6])
    world.connect(0, 0, 1, 0, rate=rate, delay=draw.choice([10**5, 10**8]), bit_error_rate=errors)
    moderation = draw.choice([None, {"time": "20 us"}, {"time": "1 ms", "packets": 3}])
    joins = {"tso": draw.random() < 0.5, "gro": draw.random() < 0.5}
    insides = [
        world.inside(
            host, cpu={"ghz": draw.choice([0.3, 3.0])}, kernel=joins, interrupts=moderation
        )
        for host in draw.sample(["h0", "h1"], draw.choice([1, 2]))
    ]
    writes = [draw.randbytes(draw.choice([1, 100, 5000, 200_000])) for _ in range(8)]
    limit = draw.choice([100, 65_536, 1 << 20])

    async def server() -> bytes:
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found = bytearray()
            while data := await reader.read(draw.choice([1000, 100_000])):
                found += data
                writer.write(data[:10])
                await writer.drain()
                if draw.random() < 0.2:
                    await sim.charge("think", us=5)
            writer.close()
            await writer.wait_closed()
            done.set_result(bytes(found))

        async with await asyncio.start_server(serve, "0.0.0.0", 80, limit=limit):
            return await done

    async def client() -> None:
        reader, writer = await asyncio.open_connection("h0", 80, limit=limit)
        answers = asyncio.create_task(reader.read())
        for data in writes:
            writer.write(data)
            await asyncio.sleep(draw.choice([0, 1e-6, 1e-3]))
        writer.write_eof()
        assert await answers
        writer.close()
        await writer.wait_closed()

    result = sim.run({"h0": server, "h1": client}, world)
    assert result.returned["h0"] == b"".join(writes)
    for seen in spent(insides):
        assert seen.busy + seen.spinning + seen.idle == seen.elapsed * seen.cores
        assert 0 < seen.busy < seen.elapsed


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"miss": 2}, "miss"),
        ({"skb": -1}, "skb"),
        ({"nothing": 1}, "nothing"),
    ],
)
def test_settings_of_the_kernel_are_checked(given: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        pair({"kernel": given})


def test_names_of_the_kernel_are_not_for_programs() -> None:
    async def program() -> None:
        with pytest.raises(ValueError, match="cost of the host's kernel: take another name"):
            await sim.charge("skb", us=1)

    sim.run({"h0": program}, pair({})[0])
