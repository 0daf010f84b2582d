# SPDX-License-Identifier: Apache-2.0
"""asyncio programs on hosts of an internet: streams and datagrams over its TCP and UDP."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from verbena import sim
from verbena.internet import Internet
from verbena.internet.autonomous_systems import AutonomousSystems
from verbena.internet.link_state import LinkState
from verbena.lan import Lan
from verbena.sim.transport_parts import give

PORT = 7000


def ring(**line: Any) -> Internet:
    """Three routers in a ring with a host each, and link state; routes have settled."""
    net = Internet(seed=7)
    names = ("a", "b", "c")
    for number, name in enumerate(names):
        net.router(name)
        net.host(f"h{number}")
        net.network(f"10.{number}.0.0/24", name, f"h{number}")
        if number:
            net.link(name, names[number - 1], **line)
    net.link("c", "a", **line)
    for name in names:
        protocol = LinkState(net.node(name), net.node(name).address)
        for interface in net.node(name).interfaces:
            protocol.add_interface(interface)
    net.converge()
    return net


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(10_000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(answer: Callable[..., Awaitable[None]] = echo) -> None:
    await (await asyncio.start_server(answer, None, PORT)).serve_forever()


def run(net: Internet, client: Callable[[], Any], server: Any = serve) -> Any:
    """Run a client on h1 and a server on h0; return what the client returned."""
    result = sim.run({"h0": server, "h1": client}, net, background=["h0"])
    return result.returned["h1"]


def test_a_connection_takes_a_round_trip_and_a_request_another() -> None:
    net = ring(delay_us=5000)

    async def client() -> tuple[float, float, str, bytes]:
        clock = asyncio.get_running_loop().time
        for _ in range(2):  # ARP has asked after the first one
            began = clock()
            reader, writer = await asyncio.open_connection("h0", PORT)
            connected = clock()
            writer.write(b"hello")
            answer = await reader.readexactly(5)
            answered = clock()
            writer.close()
        peer = writer.get_extra_info("peername")
        return connected - began, answered - connected, peer[0], answer

    connecting, answering, peer, answer = run(net, client)
    assert connecting == pytest.approx(0.01, abs=2e-4)
    assert answering == pytest.approx(0.01, abs=2e-4)
    assert (peer, answer) == ("10.0.0.2", b"hello")


@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_arrives_whole_over_loss_small_links_and_a_cut(cut: bool) -> None:
    """Both ends write much and read slowly, so that buffers fill and reading is paused."""
    net = ring(loss=0.01, mtu=400, mbps=20.0)
    sent = Random(3).randbytes(600_000)

    async def client() -> bytes:
        reader, writer = await asyncio.open_connection("10.0.0.2", PORT, limit=4096)

        async def write() -> None:
            for at in range(0, len(sent), 20_000):
                writer.write(sent[at : at + 20_000])
                await writer.drain()
            writer.write_eof()

        writing = asyncio.create_task(write())
        got = b""
        while data := await reader.read(3000):
            got += data
            await asyncio.sleep(0.0005)
            if cut and len(got) > 100_000 and net.links["b-a"].up:
                net.links["b-a"].cut(silent=True)
        await writing
        writer.close()
        await writer.wait_closed()
        return got

    assert run(net, client) == sent
    assert net.links["b-a"].up != cut


def test_errors_are_those_of_a_real_network() -> None:
    net = ring()
    net.node("b").table.on_change.clear()

    async def client() -> list[tuple[int | None, float]]:
        clock = asyncio.get_running_loop().time
        found = []
        for name, port, cut in (
            ("h0", PORT + 1, False),
            ("203.0.113.9", PORT, False),
            ("h2", PORT, True),
        ):
            if cut:
                net.links["10.2.0.0/24"].cut(silent=True)
            began = clock()
            with pytest.raises(OSError, match=r".") as caught:
                await asyncio.open_connection(name, port)
            found.append((caught.value.errno, clock() - began))
        with pytest.raises(socket.gaierror, match="called 'nobody'"):
            await asyncio.open_connection("nobody", PORT)
        with pytest.raises(OSError, match="is not the address of h1"):
            await asyncio.start_server(echo, "h0", PORT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.open_connection("h2", PORT), 2)
        return found

    refused, unreachable, silent = run(net, client)
    assert refused[0] == errno.ECONNREFUSED
    assert refused[1] < 0.01
    assert unreachable[0] == errno.ENETUNREACH  # the router says so
    assert unreachable[1] < 0.01
    assert silent == (errno.EHOSTUNREACH, pytest.approx(3, abs=0.01))  # ARP has no answer


def test_a_host_without_a_route_is_told_at_once() -> None:
    net = Internet()
    for name in ("h0", "h1", "h2"):
        net.host(name)
    net.link("h0", "h1")
    net.network("10.9.0.0/24", "h2")

    async def client() -> int | None:
        with pytest.raises(OSError, match="no route") as caught:
            await asyncio.open_connection("h2", PORT)
        return caught.value.errno

    assert run(net, client) == errno.ENETUNREACH


def test_a_reset_a_half_close_and_a_taken_port() -> None:
    net = ring()
    seen: list[Any] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read()  # to the end of what the client writes
        if request == b"reset":
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return
        writer.write(request.upper())
        writer.close()

    async def client() -> None:
        for request in (b"half", b"reset"):
            reader, writer = await asyncio.open_connection("h0", PORT)
            writer.write(request)
            writer.write_eof()
            try:
                seen.append(await reader.read())
            except ConnectionResetError:
                seen.append("reset")
            writer.close()
        server = await asyncio.start_server(answer, None, PORT)
        with pytest.raises(OSError, match="listens at TCP port 7000 already"):
            await asyncio.start_server(answer, None, PORT)
        server.close()
        (await asyncio.start_server(answer, None, PORT)).close()
        free = await asyncio.start_server(answer)
        seen.append(free.sockets[0].getsockname()[1] >= 49152)
        free.close()

    run(net, client, partial(serve, answer))
    assert seen == [b"HALF", "reset", True]


@pytest.mark.parametrize(("no_delay", "expected"), [(True, 0.0), (False, 0.05)])
def test_nagle_and_a_delayed_acknowledgement(no_delay: bool, expected: float) -> None:
    net = ring(delay_us=5000)
    times: list[float] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readexactly(100)
            times.append(asyncio.get_running_loop().time())

    async def client() -> None:
        _, writer = await asyncio.open_connection("h0", PORT)
        options = writer.get_extra_info("socket")
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, no_delay)
        with pytest.raises(OSError, match="not simulated"):
            options.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 500)
        for _ in range(2):
            writer.write(bytes(100))
        await asyncio.sleep(1)

    run(net, client, partial(serve, note))
    assert times[1] - times[0] == pytest.approx(expected, abs=1e-3)


def test_the_last_segment_of_a_message_waits_for_no_full_one() -> None:
    """One write in a message: as over a fabric, its end leaves at once, whatever is under way."""
    net = Internet()
    for name in ("s", "c"):
        net.host(name)
    net.link("s", "c", delay_us=10_000)
    times: list[float] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.readexactly(20_000):
            writer.write(data)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("s", PORT)
        loop = asyncio.get_running_loop()
        for _ in range(4):
            begun = loop.time()
            writer.write(bytes(20_000))
            await reader.readexactly(20_000)
            times.append(loop.time() - begun)

    async def server() -> None:
        async with await asyncio.start_server(echo, None, PORT) as served:
            await served.serve_forever()

    sim.run({"s": server, "c": client}, net, background={"s"})
    assert times[-1] == pytest.approx(0.020, abs=1e-3)


class Datagrams(asyncio.DatagramProtocol):
    """Keeps what comes, and sends it back if it is told to."""

    def __init__(self, answers: bool = False) -> None:
        self.answers = answers
        self.got: list[bytes] = []
        self.errors: list[int | None] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.append(data)
        if self.answers:
            self.transport.sendto(data, addr)

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc.errno if isinstance(exc, OSError) else None)


def test_datagrams_are_cut_answered_and_refused() -> None:
    net = ring(mtu=576)

    async def server() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: Datagrams(True), ("0.0.0.0", PORT))
        await asyncio.sleep(100)

    async def client() -> tuple[list[bytes], list[int | None], list[int | None]]:
        loop = asyncio.get_running_loop()
        transport, one = await loop.create_datagram_endpoint(Datagrams, remote_addr=("h0", PORT))
        for size in (1, 5000, 70_000):
            transport.sendto(b"x" * size)
            await asyncio.sleep(0.1)
        other, two = await loop.create_datagram_endpoint(Datagrams, remote_addr=("h0", PORT + 1))
        other.sendto(b"anybody?")
        await asyncio.sleep(0.1)
        transport.close()
        return one.got, one.errors, two.errors

    got, too_long, refused = run(net, client, server)
    assert [len(one) for one in got] == [1, 5000]
    assert too_long == [errno.EMSGSIZE]
    assert refused == [errno.ECONNREFUSED]


def test_a_program_that_waits_for_ever_is_named() -> None:
    async def client() -> None:
        reader, _ = await asyncio.open_connection("h0", PORT)
        await reader.read(1)

    with pytest.raises(sim.Deadlock, match="nothing has reached a program for an hour") as caught:
        run(ring(), client)
    assert "test_internet_sockets.py" in str(caught.value)
    net = Internet()
    net.host("h0")
    with pytest.raises(sim.Deadlock, match="nothing is left to happen"):
        sim.run({"h0": lambda: asyncio.Event().wait()}, net)


def test_programs_talk_through_systems_and_a_shared_cable() -> None:
    """Twice the same, to the picosecond."""

    def once() -> tuple[bytes, float, int]:
        net = Internet(seed=5)
        lan = Lan(seed=5, agenda=net.agenda)
        cable = lan.cable(300)
        for number, name in enumerate(("left", "middle", "right")):
            net.router(name)
            net.host(f"h{number}")
            if name == "left":
                for at, one in enumerate((name, "h0")):
                    lan.station(one, cable, at_m=100 * at)
                net.lan_network("10.0.0.0/24", lan, [name, "h0"])
            else:
                net.network(f"10.{number}.0.0/24", name, f"h{number}")
        systems = AutonomousSystems(net)
        for number, name in enumerate(("left", "middle", "right"), 1):
            systems.add(number, name)
        systems.provide("middle", "left")
        systems.provide("middle", "right")
        net.converge()

        async def client() -> bytes:
            reader, writer = await asyncio.open_connection("h0", PORT)
            writer.write(bytes(range(256)) * 200)
            writer.write_eof()
            return await reader.read()

        result = sim.run({"h0": serve, "h2": client}, net, background=["h0"])
        return result.returned["h2"], result.now, cable.collisions

    first = once()
    assert first[0] == bytes(range(256)) * 200
    assert first[2] > 0
    assert once() == first


def test_what_an_internet_has_not_is_refused() -> None:
    net = ring()

    async def client() -> None:
        from verbena import verbs

        assert verbs.get_device_list() == []

    sim.run({"h0": client}, net)
    for wrong in ({"switch": {}}, {"seed": 1, "mtu": 4096}, {"pkeys": {}}):
        with pytest.raises(ValueError, match="leave out"):
            sim.run({"h0": client}, net, **wrong)
    with pytest.raises(sim.NotSimulated, match=r"sim\.run"):
        sim.run_processes({"h0": client}, net)
    with pytest.raises(ValueError, match="h9"):
        sim.run({"h9": client}, net)


def test_a_protocol_whose_buffer_has_no_room_is_told() -> None:
    """As asyncio's own transports do; to ask again for ever would hang."""

    class Roomless(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray()

    with pytest.raises(RuntimeError, match="an empty buffer"):
        give(Roomless(), b"bytes")


def test_many_connections_at_once_do_not_lose_their_syns_in_step() -> None:
    """The queue takes 100 packets, and all timers of 400 SYNs began in the same picosecond."""
    net = Internet(seed=5)
    for name in ("h0", "h1"):
        net.host(name)
    net.link("h0", "h1", delay_us=1000, queue=50, mbps=100)

    async def client() -> list[float]:
        clock = asyncio.get_running_loop().time

        async def one() -> float:
            _, writer = await asyncio.open_connection("h0", PORT)
            connected = clock()
            writer.close()
            return connected

        return await asyncio.gather(*(one() for _ in range(400)))

    times = run(net, client)
    assert sum(time < 0.5 for time in times) < 100  # most SYNs were lost at first
    assert max(times) < 10


def test_what_a_run_leaves_open_does_not_stop_the_next_one() -> None:
    net = Internet(seed=5)
    for name in ("h0", "h1"):
        net.host(name)
    net.link("h0", "h1", delay_us=1000)

    async def leave_open() -> bytes:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("h1", 9))
        await asyncio.start_server(echo, None, 8000)
        reader, writer = await asyncio.open_connection("h0", PORT)
        writer.write(b"x")
        return await reader.read(1)

    async def server() -> None:
        await asyncio.start_server(echo, None, PORT)
        await asyncio.sleep(1000)

    for _ in range(3):
        assert run(net, leave_open, server) == b"x"
    net.run(100)
