# SPDX-License-Identifier: Apache-2.0
"""Connections and datagrams of programs in a world with ``sockets="tcp"``: handshake, delivery
under loss, back-pressure, Nagle, ends of connections, and UDP."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena import sim
from verbena.sim import World

MS = 10**9
DELAY = 10 * MS
RTT = 2 * DELAY / 10**12  # s, without the time on the wire


def pair(delay: int = DELAY, hosts: int = 2, errors: float = 0.0, **keywords: Any) -> World:
    """Return a world of hosts around one switch, at 10 Gb/s; ``delay`` ps between two hosts."""
    world = World(seed=3, **{"sockets": "tcp", "tcp": {"jitter": 0}, **keywords})
    switch = world.add_switch(hosts)
    for port in range(hosts):
        link = {"rate": 10 * 10**9, "delay": delay // 2, "bit_error_rate": errors}
        world.connect(world.add_host(), 0, switch, port, **link)
    world.set_routes(switch, np.arange(hosts))
    return world


async def _read_all(port: int, found: list[bytes], **options: Any) -> None:
    done = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.append(await reader.read())
        writer.close()
        await writer.wait_closed()
        done.set_result(None)

    async with await asyncio.start_server(serve, "0.0.0.0", port, **options):
        await done


def test_a_connection_takes_a_round_trip_and_data_arrive_whole() -> None:
    found: list[bytes] = []
    data = bytes(range(256)) * 4096

    async def client() -> float:
        began = asyncio.get_running_loop().time()
        reader, writer = await asyncio.open_connection("h0", 80)
        took = asyncio.get_running_loop().time() - began
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        return took

    result = sim.run({"h0": partial(_read_all, 80, found), "h1": client}, pair())
    assert found == [data]
    assert result.returned["h1"] == pytest.approx(RTT, rel=1e-4)


def test_refused_and_unreachable() -> None:
    async def refused() -> float:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("h0", 81)
        return asyncio.get_running_loop().time()

    assert sim.run({"h1": refused}, pair()).returned["h1"] == pytest.approx(RTT, rel=1e-4)
    world = pair()
    world.set_link(0, 0, False, world.now)

    async def unreachable() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.open_connection("h0", 81)
        return asyncio.get_running_loop().time()

    assert sim.run({"h1": unreachable}, world).returned["h1"] == pytest.approx(127, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12),
    segment=st.integers(64, 1460),
    no_delay=st.booleans(),
    errors=st.sampled_from([0.0, 3e-6, 2e-5]),
)
def test_any_writes_arrive_in_order(
    sizes: list[int], segment: int, no_delay: bool, errors: float
) -> None:
    found: list[bytes] = []
    data = [bytes([number]) * size for number, size in enumerate(sizes)]

    async def client() -> None:
        _, writer = await asyncio.open_connection("h0", 80)
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(no_delay))
        for one in data:
            writer.write(one)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    world = pair(MS, errors=errors, tcp={"mss": segment})
    sim.run({"h0": partial(_read_all, 80, found), "h1": client}, world)
    assert found == [b"".join(data)]


async def read_frames(count: int, times: list[float]) -> None:
    done = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(count):
            size = int.from_bytes(await reader.readexactly(2), "big")
            await reader.readexactly(size)
            times.append(asyncio.get_running_loop().time())
        writer.close()
        done.set_result(None)

    async with await asyncio.start_server(serve, "0.0.0.0", 80):
        await done


@pytest.mark.parametrize(("no_delay", "stall"), [(False, 0.040 + RTT), (True, 0)])
def test_nagle_waits_for_the_delayed_acknowledgement(no_delay: bool, stall: float) -> None:
    times: list[float] = []

    async def client() -> None:
        _, writer = await asyncio.open_connection("h0", 80)
        own = writer.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(no_delay))
        await asyncio.sleep(1e-3)  # the handshake's last ACK has left the link
        for size in (100, 200):
            writer.write(size.to_bytes(2, "big") + bytes(size))
        await asyncio.sleep(1)
        writer.close()

    sim.run({"h0": partial(read_frames, 2, times), "h1": client}, pair())
    assert times[1] - times[0] == pytest.approx(stall, abs=1e-6)


def test_a_request_and_its_response_have_no_stall() -> None:
    """The response carries the acknowledgement, so that the next request may leave."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()

    async def server() -> None:
        await (await asyncio.start_server(serve, "h0", 80)).serve_forever()

    async def client() -> float:
        reader, writer = await asyncio.open_connection("h0", 80)
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            writer.write(b"hello\n")
            assert await reader.readline() == b"HELLO\n"
        return asyncio.get_running_loop().time() - began

    result = sim.run({"h0": server, "h1": client}, pair(), background=["h0"])
    assert result.returned["h1"] == pytest.approx(10 * RTT, rel=1e-4)


def test_a_reader_that_pauses_holds_the_writer_back() -> None:
    seen: dict[str, Any] = {"read": 0}
    total = 4 << 20

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)
        while data := await reader.read(1 << 16):
            seen["read"] += len(data)
        writer.close()
        seen["done"].set_result(None)

    async def server() -> None:
        seen["done"] = asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(serve, "h0", 80):
            await seen["done"]

    async def client() -> float:
        _, writer = await asyncio.open_connection("h0", 80)
        for _ in range(total >> 16):
            writer.write(bytes(1 << 16))
            await writer.drain()
        seen["drained"] = asyncio.get_running_loop().time()
        writer.close()
        await writer.wait_closed()
        return asyncio.get_running_loop().time()

    sim.run({"h0": server, "h1": client}, pair(MS, tcp={"window": 256 << 10, "jitter": 0}))
    assert seen["read"] == total
    assert seen["drained"] > 5


async def _transfer_rate(size: int) -> float:
    """Return the bits per second at which so many bytes reach the program at port 80 of h0."""
    clock = asyncio.get_running_loop().time
    reader, writer = await asyncio.open_connection("h0", 80)
    began = clock()
    writer.write(bytes(size))
    writer.write_eof()
    await reader.read()
    writer.close()
    return size * 8 / (clock() - began)


@pytest.mark.parametrize("has_inside", [False, True])
def test_a_program_that_reads_at_once_gets_a_window_in_each_round_trip(has_inside: bool) -> None:
    window, size, found = 64 << 10, 8 << 20, list[bytes]()
    world = pair(MS, tcp={"window": window, "jitter": 0})
    for host in ("h0", "h1") if has_inside else ():
        world.inside(host, cpu={"ghz": 100.0})
    programs = {"h0": partial(_read_all, 80, found), "h1": partial(_transfer_rate, size)}
    rate = sim.run(programs, world).returned["h1"]
    whole = window - window % 1460  # the window has room for so many bytes of full segments
    assert 0.9 < rate / (whole * 8 / (2 * MS / 10**12)) < 1


def test_the_send_buffer_grows_with_the_congestion_window() -> None:
    window, seen = 256 << 10, list[int]()

    async def client() -> None:
        _, writer = await asyncio.open_connection("h0", 80)
        own = writer.get_extra_info("socket")
        for _ in range(2):
            seen.append(own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
            writer.write(bytes(4 << 20))
            seen.append(writer.transport.get_write_buffer_size())
            await writer.drain()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 5000)
        seen.append(own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        writer.close()

    world = pair(MS, tcp={"window": window, "initial_window": 10, "jitter": 0})
    sim.run({"h0": partial(_read_all, 80, []), "h1": client}, world)
    first = 4 * 10 * 1460
    assert seen[:3] == [first, (4 << 20) - first, 2 * window]
    assert seen[4] == 10_000


def test_the_loopback_reaches_no_other_host() -> None:
    async def client() -> int | None:
        with pytest.raises(OSError) as caught:
            await asyncio.open_connection("h0", 80, local_addr=("127.0.0.1", 0))
        return caught.value.errno

    assert sim.run({"h1": client}, pair()).returned["h1"] == errno.EINVAL


RESETS = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: the end is a RST


def test_no_linger_resets_the_peer_and_half_close_does_not() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"a":
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
            writer.transport.abort()
            return
        rest = await reader.read()
        writer.write(b"after the end: " + rest)
        writer.close()

    async def server() -> None:
        await (await asyncio.start_server(serve, "h0", 80)).serve_forever()

    async def client() -> bytes:
        reader, writer = await asyncio.open_connection("h0", 80)
        writer.write(b"a")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        reader, writer = await asyncio.open_connection("h0", 80)
        writer.write(b"bcd")
        writer.write_eof()
        return await reader.read()

    result = sim.run({"h0": server, "h1": client}, pair(), background=["h0"])
    assert result.returned["h1"] == b"after the end: cd"


def test_a_connection_whose_link_ends_times_out() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def server() -> None:
        await (await asyncio.start_server(serve, "h0", 80)).serve_forever()

    world = pair(tcp={"retries": 3, "jitter": 0})

    async def client() -> None:
        reader, writer = await asyncio.open_connection("h0", 80)
        world.set_link(0, 0, False, world.now)
        writer.write(b"lost")
        with pytest.raises(TimeoutError):
            await reader.read()

    sim.run({"h0": server, "h1": client}, world, background=["h0"])


def test_cancelled_connects_leave_nothing() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def server() -> None:
        await (await asyncio.start_server(serve, "h0", 80)).serve_forever()

    async def client() -> None:
        for step in range(30):
            try:
                async with asyncio.timeout(step * RTT / 20):
                    _, writer = await asyncio.open_connection("h0", 80)
                writer.close()
            except TimeoutError:
                assert step < 21
        await asyncio.sleep(1)

    sim.run({"h0": server, "h1": client}, pair(), background=["h0"])


def _datagrams(server_port: int, sizes: list[int], world: World) -> tuple[list[int], list[Any]]:
    found: list[int] = []
    errors: list[Any] = []

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            found.append(len(data))

        def error_received(self, exc: Exception) -> None:
            errors.append(exc)

    async def server() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(Receiver, local_addr=("h0", 53))
        await asyncio.sleep(1)

    async def client() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            Receiver, remote_addr=("h0", server_port)
        )
        for size in sizes:
            transport.sendto(bytes(size))
        await asyncio.sleep(1)
        transport.close()

    sim.run({"h0": server, "h1": client}, world)
    return found, errors


def test_datagrams_are_fragmented_and_have_a_longest() -> None:
    found, errors = _datagrams(53, [0, 1472, 1473, 65507, 65508], pair())
    assert found == [0, 1472, 1473, 65507]
    assert [error.errno for error in errors] == [errno.EMSGSIZE]


def test_a_port_without_a_socket_is_unreachable() -> None:
    found, errors = _datagrams(54, [5], pair())
    assert not found
    assert [type(error) for error in errors] == [ConnectionRefusedError]


def test_datagrams_are_lost_and_whole() -> None:
    sizes = [8000] * 200
    found, _ = _datagrams(53, sizes, pair(errors=2e-6))
    assert 0 < len(found) < 200
    assert set(found) == {8000}


def test_a_long_write_takes_a_time_in_proportion() -> None:
    """Real time: what is left of a write is not copied for each segment."""

    def seconds(size: int) -> float:
        found: list[bytes] = []

        async def client() -> None:
            _, writer = await asyncio.open_connection("h0", 80)
            writer.write(bytes(size))
            writer.close()
            await writer.wait_closed()

        began = time.process_time()
        sim.run({"h0": partial(_read_all, 80, found), "h1": client}, pair(MS))
        assert len(found[0]) == size
        return time.process_time() - began

    seconds(1 << 20)
    assert seconds(24 << 20) < 20 * seconds(4 << 20)  # with copies about 36 times


def test_a_stream_is_as_fast_as_a_flow() -> None:
    found: list[bytes] = []
    total = 8 << 20
    tcp = {"jitter": 0, "ack_delay": MS}

    async def client() -> float:
        _, writer = await asyncio.open_connection("h0", 80)
        began = asyncio.get_running_loop().time()
        writer.write(bytes(total))
        writer.close()
        await writer.wait_closed()
        return began

    result = sim.run({"h0": partial(_read_all, 80, found), "h1": client}, pair(MS, tcp=tcp))
    took = result.finished["h0"] - result.returned["h1"]
    world = pair(MS, tcp=tcp)
    world.add_flows(1, 0, total, transport="tcp", control="cubic")
    world.run()
    flow = float(world.flows()["finish"][0] - MS) / 10**12  # until the last byte
    assert took == pytest.approx(flow, rel=1e-4)


def test_control_network_has_no_datagrams() -> None:
    async def program() -> None:
        await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol)

    with pytest.raises(sim.NotSimulated, match='sockets="tcp"'):
        sim.run({"h0": program}, pair(sockets="control"))


class Ends(asyncio.Protocol):
    """Keeps its end open when the peer's stream has ended, and counts connection_lost."""

    def __init__(self) -> None:
        self.lost: list[Exception | None] = []
        self.transport: Any = None
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def eof_received(self) -> bool:
        self.ended.set_result(None)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


@pytest.mark.parametrize("peer_ends", [True, False])
@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_connection_is_lost_once_whatever_the_peer_does(peer_ends: bool, end: str) -> None:
    made: list[Ends] = []

    def accept() -> Ends:
        made.append(Ends())
        return made[-1]

    async def server() -> None:
        await asyncio.get_running_loop().create_server(accept, "h0", 80)
        await asyncio.sleep(0.5)
        if peer_ends:
            made[0].transport.write_eof()
        await asyncio.sleep(2)
        assert made[0].lost == [] or end == "abort"
        getattr(made[0].transport, end)()
        await asyncio.sleep(1)

    async def client() -> list[Exception | None]:
        transport, protocol = await asyncio.get_running_loop().create_connection(Ends, "h0", 80)
        transport.write_eof()
        await asyncio.sleep(1)
        assert protocol.lost == []
        getattr(transport, end)()
        getattr(transport, end)()
        await asyncio.sleep(4)
        return protocol.lost

    result = sim.run({"h0": server, "h1": client}, pair())
    assert result.returned["h1"] == [None]
    assert len(made[0].lost) == 1


def test_close_waits_until_all_is_in_the_send_buffer() -> None:
    found: list[bytes] = []

    async def client() -> tuple[float, int]:
        _, writer = await asyncio.open_connection("h0", 80)
        writer.write(bytes(4 << 20))
        began = asyncio.get_running_loop().time()
        waits = writer.transport.get_write_buffer_size()  # type: ignore[attr-defined]
        writer.close()
        await writer.wait_closed()
        return asyncio.get_running_loop().time() - began, waits

    world = pair(tcp={"window": 256 << 10, "jitter": 0})
    result = sim.run({"h0": partial(_read_all, 80, found), "h1": client}, world)
    assert len(found[0]) == 4 << 20
    took, waits = result.returned["h1"]
    assert waits > 3 << 20
    assert took > waits / (256 << 10) * RTT / 2  # at most a window in each round trip


def test_times_do_not_depend_on_threads() -> None:
    def times(threads: int) -> tuple[list[float], int]:
        seen: list[float] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                seen.append(asyncio.get_running_loop().time())
                writer.write(data[:100])
            writer.close()

        async def server() -> None:
            await (await asyncio.start_server(serve, "h0", 80)).serve_forever()

        async def client() -> None:
            reader, writer = await asyncio.open_connection("h0", 80)
            writer.write(bytes(1 << 20))
            writer.write_eof()
            await reader.read()
            seen.append(asyncio.get_running_loop().time())
            writer.close()

        world = pair(MS, 4, errors=1e-6, threads=threads, tcp={})
        programs = {"h0": server, "h1": client, "h2": client, "h3": client}
        sim.run(programs, world, background=["h0"])
        return seen, world.now

    assert times(1) == times(2)


def test_processes_have_no_tcp() -> None:
    with pytest.raises(sim.NotSimulated, match="process of the world"):
        sim.run_processes({"h0": ["true"]}, pair())


@pytest.mark.parametrize("pieces", [[302 + 2], [1] * 304, [1, 101, 1, 201], [50, 52, 202]])
def test_frames_of_100_and_200_bytes_are_whole_in_any_split(pieces: list[int]) -> None:
    data = b"".join(size.to_bytes(2, "big") + bytes(size) for size in (100, 200))
    times: list[float] = []

    async def client() -> None:
        _, writer = await asyncio.open_connection("h0", 80)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        at = 0
        for size in pieces:
            writer.write(data[at : at + size])
            at += size
            await asyncio.sleep(1e-6)
        writer.close()

    sim.run({"h0": partial(read_frames, 2, times), "h1": client}, pair())
    assert len(times) == 2


def test_many_datagrams_in_one_go_need_one_timer() -> None:
    class Counting(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.count = 0

        def datagram_received(self, data: bytes, source: Any) -> None:
            self.count += 1

    async def receiver() -> int:
        made = Counting()
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: made, local_addr=("0.0.0.0", 9))
        await asyncio.sleep(2)
        return made.count

    async def sender() -> int:
        loop: Any = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("h0", 9)
        )
        await asyncio.sleep(0.1)
        timers = 0

        def count(ps: int, call: Any, after: Any = loop.network.after) -> Any:
            nonlocal timers
            timers += 1
            return after(ps, call)

        loop.network.after = count
        for _ in range(2000):
            transport.sendto(bytes(1000))
        await asyncio.sleep(1)
        return timers

    returned = sim.run({"h0": receiver, "h1": sender}, pair()).returned
    assert returned["h0"] == 2000
    assert returned["h1"] < 100


def test_syns_that_were_lost_together_are_sent_again_at_different_times() -> None:
    def times_of_syns() -> list[float]:
        world = pair()
        world.set_link(0, 0, False, world.now)
        times: list[float] = []

        async def client() -> None:
            loop: Any = asyncio.get_running_loop()

            def send(*args: Any, control: Any = loop.network.send_control, **more: Any) -> None:
                times.append(loop.time())
                control(*args, **more)

            loop.network.send_control = send
            calls = (asyncio.wait_for(asyncio.open_connection("h0", 80), 6) for _ in range(10))
            await asyncio.gather(*calls, return_exceptions=True)

        sim.run({"h1": client}, world)
        return times

    times = times_of_syns()
    assert times == times_of_syns()
    rounds = [times[at : at + 10] for at in (0, 10, 20)]
    assert [len({*one}) for one in rounds] == [1, 10, 10]
    for one, (first, last) in zip(rounds[1:], [(1, 1.125), (3, 3.25)], strict=True):
        assert first <= min(one) <= max(one) < last


@pytest.mark.parametrize("ending", ["close", "abort", "drop"])
@pytest.mark.parametrize("size", [1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("has_inside", [False, True])
def test_a_side_that_leaves_while_the_other_still_sends(
    ending: str, size: int, has_inside: bool
) -> None:
    """What the other one has to send goes with the connection, and others go on."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await reader.read()
        writer.close()

    async def server() -> None:
        await (await asyncio.start_server(answer, "h0", 7000)).serve_forever()

    async def client() -> int:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("h0", 7000)
            assert await reader.read(1)
            if ending == "close":
                writer.close()
            elif ending == "abort":
                writer.transport.abort()
            del reader, writer
            await asyncio.sleep(1e-5)
        reader, writer = await asyncio.open_connection("h0", 7000)
        writer.write_eof()
        found = len(await reader.read())
        writer.close()
        return found

    world = pair()
    for host in ("h0", "h1") if has_inside else ():
        world.inside(host)
    result = sim.run({"h0": server, "h1": client}, world, background=["h0"])
    assert result.returned["h1"] == size
    assert world.check() is None
