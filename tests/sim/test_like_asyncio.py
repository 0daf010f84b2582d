# SPDX-License-Identifier: Apache-2.0
"""The same programs on asyncio's own sockets and on simulated hosts, with equal results."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from verbena import fabrics, sim
from verbena.internet import Internet

PORT = 7000
TCP_KINDS = ("fabric", "internet")
KINDS = (*TCP_KINDS, "control")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Client = Callable[[str, int], Awaitable[Any]]


def two_hosts(kind: str) -> tuple[Any, dict[str, Any]]:
    """Return a network with the hosts h0 and h1, and the keywords of ``sim.run`` for it."""
    if kind == "internet":
        net = Internet(seed=5)
        net.host("h0")
        net.host("h1")
        net.link("h0", "h1", delay_us=1000)
        return net, {}
    fabric = fabrics.one_switch(2, rate="10GbE")
    return fabric, {"sockets": "tcp"} if kind == "fabric" else {}


async def _idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def really(client: Client, serve: Handler = _idle) -> Any:
    """Run a client and a server with sockets of this machine; return what the client returned."""

    async def both() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await client("127.0.0.1", server.sockets[0].getsockname()[1])

    return asyncio.run(asyncio.wait_for(both(), 30))


def simulated(kind: str, client: Client, serve: Handler = _idle) -> Any:
    """The same between two simulated hosts."""

    async def server() -> None:
        await (await asyncio.start_server(serve, None, PORT)).serve_forever()

    net, keywords = two_hosts(kind)
    programs: Any = {"h0": server, "h1": lambda: client("h0", PORT)}
    return sim.run(programs, net, background=["h0"], **keywords).returned["h1"]


def alone(kind: str, program: Callable[[str], Awaitable[Any]]) -> Any:
    """Run a program, which gets a name of its own host, on one simulated host."""
    net, keywords = two_hosts(kind)
    return sim.run({"h1": lambda: program("h1")}, net, **keywords).returned["h1"]


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_nagle_is_off_until_the_program_turns_it_on(kind: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        await reader.readexactly(100)
        began = clock()
        await reader.readexactly(200)
        writer.write(b"late" if clock() - began > 0.03 else b"soon")
        writer.close()

    async def client(host: str, port: int) -> list[Any]:
        seen: list[Any] = []
        for change in (None, 0):
            reader, writer = await asyncio.open_connection(host, port)
            options = writer.get_extra_info("socket")
            seen.append(bool(options.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            if change is not None:
                options.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, change)
            await asyncio.sleep(0.1)
            for size in (100, 200):
                writer.write(bytes(size))
                await asyncio.sleep(0)
            seen.append(await reader.read())
            writer.close()
        return seen

    found = simulated(kind, client, serve)
    assert found == [True, b"soon", True, b"late"]
    assert really(client, serve)[:3] == found[:3]  # the machine's own delay varies


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_at_the_loopback_is_for_its_own_host(kind: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(writer.get_extra_info("sockname")[0]).encode())
        writer.close()

    async def own() -> tuple[Any, bytes]:
        server = await asyncio.start_server(answer, "127.0.0.1", PORT)
        name = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        found = await reader.read()
        writer.close()
        await asyncio.sleep(1)
        server.close()
        return name, found

    async def other() -> None:
        await asyncio.sleep(0.5)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("h0", PORT)

    net, keywords = two_hosts(kind)
    name, found = sim.run({"h0": own, "h1": other}, net, **keywords).returned["h0"]
    assert name == ("127.0.0.1", PORT)
    assert found == b"127.0.0.1"


async def _ways_of_serving(host: str) -> list[Any]:
    """What a server says while it does not serve yet, twice, and no longer."""
    seen: list[Any] = []
    server = await asyncio.start_server(_idle, host, 0, start_serving=False)
    port = server.sockets[0].getsockname()[1]
    seen.append(server.is_serving())
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)
    await server.start_serving()
    seen.append(server.is_serving())
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    serving = asyncio.create_task(server.serve_forever())
    await asyncio.sleep(0.01)
    with pytest.raises(RuntimeError, match="already being awaited"):
        await asyncio.wait_for(server.serve_forever(), 1)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    seen.append(server.is_serving())
    with pytest.raises(RuntimeError, match="is closed"):
        await asyncio.wait_for(server.serve_forever(), 1)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_serves_when_it_is_told_and_once(kind: str) -> None:
    assert alone(kind, _ways_of_serving) == [False, True, False]
    assert asyncio.run(_ways_of_serving("127.0.0.1")) == [False, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_ipv6_is_refused_and_not_taken_for_ipv4(kind: str) -> None:
    async def program(host: str) -> None:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6
        calls = [
            lambda: asyncio.start_server(_idle, "::", PORT),
            lambda: asyncio.start_server(_idle, host, PORT, family=family),
            lambda: asyncio.open_connection("::1", PORT),
            lambda: asyncio.open_connection(host, PORT, family=family),
            lambda: loop.getaddrinfo(host, PORT, family=family),
        ]
        if kind != "control":
            endpoint = loop.create_datagram_endpoint
            calls.append(lambda: endpoint(asyncio.DatagramProtocol, local_addr=("::", 9)))
            calls.append(lambda: endpoint(asyncio.DatagramProtocol, family=family))
        for call in calls:
            with pytest.raises(OSError, match="have no IPv6: use IPv4 or names"):
                await call()

    alone(kind, program)


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_the_name_of_the_own_host_is_a_local_address(kind: str) -> None:
    async def program(host: str) -> None:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(_idle, host, PORT)
        transport, _ = await loop.create_connection(
            asyncio.Protocol, host, PORT, local_addr=(host, 0)
        )
        transport.close()
        datagrams, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=(host, 0)
        )
        datagrams.close()
        server.close()
        with pytest.raises(OSError, match="'h0' is not "):
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("h0", 0))

    alone(kind, program)


@pytest.mark.parametrize("kind", KINDS)
def test_abort_is_the_end_of_the_stream_and_no_reset(kind: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"sent")
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async def client(host: str, port: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x")
        found = await reader.read()
        writer.close()
        await writer.wait_closed()
        return found

    assert really(client, serve) == b"sent"
    assert simulated(kind, client, serve) == b"sent"


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_abort_forgets_what_is_not_sent_and_ends(kind: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        total = bytes(30_000_000)
        writer.write(total)
        writer.write_eof()
        writer.transport.abort()

    async def client(host: str, port: int) -> tuple[bool, bytes]:
        reader, writer = await asyncio.open_connection(host, port)
        await asyncio.sleep(0.1)
        found = await reader.read()
        writer.close()
        return len(found) < 30_000_000, found[:1]

    assert really(client, serve)[0]
    assert simulated(kind, client, serve) == (True, bytes(1))


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_writing_to_a_closed_peer_breaks_the_pipe(kind: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.close()

    async def client(host: str, port: int) -> list[Any]:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x")
        seen: list[Any] = [await reader.read()]
        try:
            for _ in range(10):
                writer.write(b"y" * 10)
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError as error:
            seen.append((type(error), error.errno))
        writer.close()
        try:
            await writer.wait_closed()
        except OSError as error:
            seen.append(type(error))
        return seen

    expected = [b"", (ConnectionResetError, None), BrokenPipeError]
    assert really(client, serve) == expected
    assert simulated(kind, client, serve) == expected


class Failing(asyncio.Protocol):
    """Raises in one of its calls, and notes how the connection ended."""

    def __init__(self, where: str, seen: list[Any]) -> None:
        self.where, self.seen = where, seen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.where == "connection_made":
            raise ValueError

    def data_received(self, data: bytes) -> None:
        if self.where == "data_received":
            raise ValueError

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.append(type(exc))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_protocol_raises_goes_to_the_exception_handler(kind: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"data")
        writer.write(await reader.read())
        writer.close()

    async def client(host: str, port: int) -> list[Any]:
        loop = asyncio.get_running_loop()
        seen: list[Any] = []
        loop.set_exception_handler(lambda _, found: seen.append(found["message"][:35]))
        for where in ("connection_made", "data_received"):
            transport, _ = await loop.create_connection(
                lambda where=where: Failing(where, seen), host, port
            )
            await asyncio.sleep(0.1)
            seen.append(transport.is_closing())
            transport.close()
            await asyncio.sleep(0.1)
        loop.set_exception_handler(None)
        return [str(one)[:26] for one in seen]

    expected = [
        "Exception in callback Fail", "False", "<class 'NoneType'>",
        "Fatal error: protocol.data", "<class 'ValueError'>", "True",
    ]  # fmt: skip
    assert really(client, serve) == expected
    assert simulated(kind, client, serve) == expected


class Datagrams(asyncio.DatagramProtocol):
    """Notes the errors of a datagram endpoint."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def error_received(self, exc: Exception) -> None:
        self.seen.append(type(exc))


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_a_closed_udp_port_of_the_own_host_refuses(kind: str) -> None:
    async def program(host: str) -> list[Any]:
        seen: list[Any] = []
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(seen), remote_addr=(host, 9777)
        )
        for _ in range(2):
            transport.sendto(b"1")
            await asyncio.sleep(0.05)
        transport.close()
        return seen

    expected = [ConnectionRefusedError] * 2
    assert asyncio.run(program("127.0.0.1")) == expected
    assert alone(kind, program) == expected


async def _sockets_of(host: str, *, datagrams: bool) -> list[Any]:
    """What the socket objects of a connection to the own host, and of datagrams, say."""
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(_idle, host, 0)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection(host, port)
    opened: list[Any] = [writer.transport]
    if datagrams:
        for options in ({"local_addr": (host, 0)}, {"remote_addr": (host, 9)}):
            made, _ = await loop.create_datagram_endpoint(lambda: Datagrams([]), **options)
            opened.append(made)
    seen: list[Any] = []
    for transport in opened:
        own = transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        seen.append(
            (own.family, own.type, bool(own.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)))
        )
        seen.append(own.getsockname() == transport.get_extra_info("sockname"))
        try:
            seen.append(own.getpeername() == transport.get_extra_info("peername"))
        except OSError as error:
            seen.append(error.errno)
        if own.type == socket.SOCK_STREAM:
            seen.append(bool(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        transport.close()
    server.close()
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_every_transport_has_a_socket(kind: str) -> None:
    program = partial(_sockets_of, datagrams=kind != "control")
    assert alone(kind, program) == asyncio.run(program("127.0.0.1"))


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_addresses_that_are_none_are_refused_with_their_form(kind: str) -> None:
    async def program(host: str) -> None:
        loop = asyncio.get_running_loop()
        form = r"and not a host and a port, as \('h1', 7000\)"
        with pytest.raises(TypeError, match=f"local_addr is 'x', {form}"):
            await loop.create_connection(asyncio.Protocol, host, PORT, local_addr="x")
        with pytest.raises(TypeError, match=f"remote_addr is 'x', {form}"):
            await loop.create_datagram_endpoint(Datagrams, remote_addr="x")
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=(host, 0)
        )
        for wrong in ("abc", (host,)):
            with pytest.raises(TypeError, match=form):
                transport.sendto(b"z", wrong)
        with pytest.raises(OverflowError, match="port must be 0-65535"):
            transport.sendto(b"z", (host, 70000))
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("h0", 0)

    alone(kind, program)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_transport_takes_and_when(kind: str) -> None:
    async def client(host: str, port: int) -> list[Any]:
        _, writer = await asyncio.open_connection(host, port)
        transport: Any = writer.transport
        seen: list[Any] = [transport.get_write_buffer_limits()]
        for limits in ({"high": 100}, {"low": 5}, {"high": 5, "low": 10}):
            try:
                transport.set_write_buffer_limits(**limits)
                seen.append(transport.get_write_buffer_limits())
            except ValueError as error:
                seen.append(str(error))
        for wrong in ("text", 5, None):
            with pytest.raises(TypeError) as caught:
                writer.write(wrong)  # type: ignore[arg-type]
            seen.append(str(caught.value))
        transport.abort()
        writer.write(b"forgotten")
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionResetError, match="Connection lost"):
            await writer.drain()
        _, writer = await asyncio.open_connection(host, port)
        writer.write_eof()
        writer.close()
        with pytest.raises(RuntimeError, match="after write_eof"):
            writer.write(b"late")
        return seen

    assert simulated(kind, client) == really(client)


class Received(Datagrams):
    """Notes what came, too."""

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.seen.append(data)


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_datagrams_at_the_loopback_are_for_their_own_host(kind: str) -> None:
    async def send(host: str, seen: list[Any]) -> None:
        loop = asyncio.get_running_loop()
        made, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(seen), remote_addr=(host, 9)
        )
        made.sendto(b"hello")
        await asyncio.sleep(0.1)
        made.close()

    async def own() -> list[Any]:
        seen: list[Any] = []
        made, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Received(seen), local_addr=("127.0.0.1", 9)
        )
        seen.append(made.get_extra_info("sockname"))
        await send("localhost", seen)
        await asyncio.sleep(1)
        return seen

    async def other() -> list[Any]:
        seen: list[Any] = []
        await asyncio.sleep(0.5)
        await send("h0", seen)
        return seen

    net, keywords = two_hosts(kind)
    returned = sim.run({"h0": own, "h1": other}, net, **keywords).returned
    assert returned == {"h0": [("127.0.0.1", 9), b"hello"], "h1": [ConnectionRefusedError]}


class Paused(asyncio.Protocol):
    """Notes when it has to pause its writing."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def pause_writing(self) -> None:
        self.seen.append("pause")

    def resume_writing(self) -> None:
        self.seen.append("resume")


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_a_write_that_is_longer_than_the_send_buffer_pauses_the_program(kind: str) -> None:
    async def client(host: str, port: int) -> list[Any]:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Paused, host, port)
        transport.write(bytes(10_000))
        short = transport.get_write_buffer_size()
        transport.write(bytes(8_000_000))
        waits = transport.get_write_buffer_size()
        paused = list(protocol.seen)
        while transport.get_write_buffer_size():
            await asyncio.sleep(0.001)
        transport.close()
        return [short, 65_536 < waits < 8_000_000, paused, protocol.seen]

    found = simulated(kind, client)
    assert found == [0, True, ["pause"], ["pause", "resume"]]
    assert really(client) == found


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_of_its_own_host_gets_a_port_that_nobody_has(kind: str) -> None:
    async def program(host: str) -> bool:
        server = await asyncio.start_server(_idle, host, 0)
        port = server.sockets[0].getsockname()[1]
        seen = {port}
        for _ in range(3):
            _, writer = await asyncio.open_connection(host, port)
            assert writer.get_extra_info("peername")[1] == port
            seen.add(writer.get_extra_info("sockname")[1])
        server.close()
        return len(seen) == 4

    assert alone(kind, program)
    assert asyncio.run(program("127.0.0.1"))


async def _errno_of(call: Awaitable[Any]) -> int | None:
    with pytest.raises(OSError) as caught:
        await call
    return caught.value.errno


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_addresses_and_ports_that_a_host_does_not_have_are_refused(kind: str) -> None:
    async def client(host: str, port: int) -> list[int | None]:
        connect = partial(asyncio.open_connection, host, port)
        endpoint = asyncio.get_running_loop().create_datagram_endpoint
        _, writer = await connect(local_addr=("0.0.0.0", 0))
        mine = writer.get_extra_info("sockname")[1]
        seen = [
            await _errno_of(connect(local_addr=("0.0.0.0", mine))),
            await _errno_of(connect(local_addr=("9.9.9.9", 0))),
            await _errno_of(asyncio.start_server(_idle, "9.9.9.9", 0)),
            await _errno_of(endpoint(asyncio.DatagramProtocol, local_addr=("9.9.9.9", 0))),
        ]
        writer.close()
        return seen

    assert simulated(kind, client) == [errno.EADDRINUSE] + [errno.EADDRNOTAVAIL] * 3
    assert really(client) == simulated(kind, client)


@pytest.mark.parametrize("kind", ["fabric", "control"])
def test_a_server_cannot_have_the_port_of_a_client(kind: str) -> None:
    async def client(host: str, port: int) -> list[int | None]:
        _, writer = await asyncio.open_connection(host, port)
        mine = writer.get_extra_info("sockname")[1]
        seen = [await _errno_of(asyncio.start_server(_idle, "0.0.0.0", mine))]
        writer.close()
        await writer.wait_closed()
        return seen

    assert simulated(kind, client) == [errno.EADDRINUSE] == really(client)


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_names_to_bind_to_are_looked_up(kind: str) -> None:
    async def client(host: str, port: int) -> list[Any]:
        connect = partial(asyncio.open_connection, host, port)
        with pytest.raises(socket.gaierror):
            await connect(local_addr=("nobody", 0))
        with pytest.raises(socket.gaierror):
            await asyncio.start_server(_idle, "nobody", 0)
        seen: list[Any] = [await _errno_of(connect(local_addr=("h0", 0)))]
        _, writer = await connect(local_addr=("h1", 5000))
        seen.append(writer.get_extra_info("sockname")[1])
        writer.close()
        return seen

    assert simulated(kind, client) == [errno.EADDRNOTAVAIL, 5000]


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_a_datagram_that_cannot_leave_is_an_error_of_the_protocol(kind: str) -> None:
    async def program(host: str) -> list[Any]:
        seen: list[Any] = []
        loop = asyncio.get_running_loop()
        made, _ = await loop.create_datagram_endpoint(lambda: Datagrams(seen), local_addr=(host, 0))
        made.sendto(b"lost", ("::1", 5))  # no address of the socket's family
        made.sendto(b"lost", (host, 0))
        made.sendto(bytes(70_000), (host, 5))
        seen.append(made.is_closing())
        made.close()
        made, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(seen), remote_addr=(host, 0)
        )
        made.sendto(b"lost")
        made.close()
        return seen

    assert alone(kind, program) == [socket.gaierror, OSError, OSError, False, OSError]
    assert asyncio.run(program("127.0.0.1")) == alone(kind, program)


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_a_datagram_to_an_unknown_name_is_an_error_of_the_protocol(kind: str) -> None:
    async def program(host: str) -> list[Any]:
        seen: list[Any] = []
        made, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Datagrams(seen), local_addr=(host, 0)
        )
        made.sendto(b"lost", ("nobody", 5))
        made.close()
        return seen

    assert alone(kind, program) == [socket.gaierror]
