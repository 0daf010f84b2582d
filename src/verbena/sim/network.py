# SPDX-License-Identifier: Apache-2.0
"""The control network of simulated hosts, over which programs exchange addresses and keys.

``asyncio.start_server`` and ``asyncio.open_connection`` of a program reach the other hosts by name
or IPv4 address (``loop.Loop`` calls this module). A message takes a constant time, however long it
is, and none is lost. It is a management network beside the fabric, and no load on the fabric.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
from collections import deque
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any

from .errors import NotSimulated
from .hosts import Host, Hosts, host_here
from .transport_parts import CallsProtocol, PlainSocket, WriteLimits, announce, check_bytes_like

if TYPE_CHECKING:
    from .loop import Loop

__all__ = [
    "Address", "Factory", "Network", "Server", "Stream", "address_pair", "bound_to", "network_of",
    "own_host", "port_number", "refuse_ipv6",
]  # fmt: skip

ANY = (None, "", "0.0.0.0")
LOOPBACK = "127.0.0.1"
OWN = ("localhost", LOOPBACK)
FIRST_FREE_PORT = 49152
LAST_PORT = 65535
TCP = 6
Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]
PortKey = tuple[int, int, int]  # protocol, host and port


class Network:
    """The listening servers of all hosts, and connections between hosts."""

    whole = "the simulated fabric"

    def __init__(self, loop: Loop, hosts: Hosts, delay: float) -> None:
        self.loop = loop
        self.delay = delay
        self._hosts = hosts
        self._listening: dict[tuple[int, int], Server] = {}
        self._next_port: dict[int, int] = {}
        self.used_ports: set[PortKey] = set()  # of sockets that do not listen

    def listening(self, host: Host, port: int, *, own: bool = False) -> Server | None:
        """Return the server that takes a connection to a host's port, or None. ``own``: the host
        calls itself."""
        server = self._listening.get((host.number, port))
        return server if server is not None and server.takes(own) else None

    def look_up(self, name: Any, port: Any) -> list[tuple[Any, ...]]:
        """Return what getaddrinfo would. Raises socket.gaierror if no host of the world has the
        name."""
        host = self._find(name)
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (host.address, port_number(port)))]

    def _find(self, name: Any) -> Host:
        text = name.decode() if isinstance(name, bytes) else name
        refuse_ipv6(text)
        found = own_host() if text in OWN or text is None else self._hosts.find(str(text))
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no host of {self.whole} is called {text!r}")
        return found

    def listen(self, factory: Factory, name: Any, port: Any) -> Server:
        """Return a server of the calling host. Raises OSError: EADDRINUSE, EADDRNOTAVAIL; and
        socket.gaierror for an unknown name."""
        own = own_host()
        names = name if isinstance(name, (list, tuple)) else [name]
        for one in names:
            refuse_ipv6(one)
            self.own_address(own, one)
        number = port_number(port) or self.free_port(TCP, own)
        if (own.number, number) in self._listening:
            raise OSError(errno.EADDRINUSE, f"{own.name} listens on port {number} already")
        if (TCP, own.number, number) in self.used_ports:
            raise OSError(errno.EADDRINUSE, f"a connection of {own.name} has port {number}")
        server = Server(self, own, number, factory, bound_to(name))
        self._listening[own.number, number] = server
        return server

    def own_address(self, own: Host, name: Any) -> str | None:
        """Return the address of a host that a name to bind to stands for; None: any.

        Raises OSError (EADDRNOTAVAIL) for what is not the host's, and socket.gaierror for a name
        that nobody has.
        """
        if name in ANY:
            return None
        if name in OWN:
            return LOOPBACK
        try:
            is_own = self._find(name) is own
        except socket.gaierror:
            if not _is_ipv4(name):
                raise
            is_own = False
        if not is_own:
            raise OSError(errno.EADDRNOTAVAIL, f"{name!r} is not the address of {own.name}")
        return name if name in own.addresses else own.address

    def free_port(self, protocol: int, host: Host) -> int:
        """Return a port of a host that no socket has. Raises OSError (EADDRINUSE)."""
        first = self._next_port.get(host.number, FIRST_FREE_PORT)
        size = LAST_PORT + 1 - FIRST_FREE_PORT
        for step in range(size):
            port = FIRST_FREE_PORT + (first - FIRST_FREE_PORT + step) % size
            if (protocol, host.number, port) not in self.used_ports and (
                protocol != TCP or (host.number, port) not in self._listening
            ):
                self._next_port[host.number] = port + 1
                return port
        raise OSError(errno.EADDRINUSE, f"all ports of {host.name} are in use")

    def take_port(self, host: Host, wanted: int = 0) -> PortKey:
        """Give a TCP port of a host, or any that is free, to a connection, which gives it back by
        ``used_ports.discard``. Raises OSError (EADDRINUSE)."""
        key = (TCP, host.number, wanted or self.free_port(TCP, host))
        if key in self.used_ports or key[1:] in self._listening:
            raise OSError(errno.EADDRINUSE, f"TCP port {wanted} of {host.name} is in use")
        self.used_ports.add(key)
        return key

    def end(self) -> None:
        """The programs have ended; what they left open has ended with them."""

    def forget(self, server: Server) -> None:
        self._listening.pop((server.host.number, server.port), None)

    async def open_datagrams(self, factory: Factory, local: Any, remote: Any) -> tuple[Any, Any]:
        """Raise NotSimulated: the control network has streams alone."""
        raise NotSimulated(
            'create_datagram_endpoint: datagrams are simulated in a world with sockets="tcp"'
        )

    async def connect(
        self, factory: Factory, name: Any, port: Any, local: Any = None
    ) -> tuple[Any, Any]:
        """Connect the calling host to a server. Raises ConnectionRefusedError if none listens
        there."""
        if local is not None:
            raise NotSimulated('local_addr: it needs a world with sockets="tcp"')
        return await self.connect_beside(factory, name, port)

    async def connect_beside(
        self, factory: Factory, name: Any, port: Any, local: tuple[Any, Any] | None = None
    ) -> tuple[Stream, Any]:
        """Connect the calling host to a server without the fabric. Raises OSError: ECONNREFUSED;
        EADDRINUSE and EADDRNOTAVAIL for ``local``, its own address and port."""
        own, target, number = own_host(), self._find(name), port_number(port)
        source = self.own_address(own, local[0]) if local else None
        key = self.take_port(own, port_number(local[1]) if local else 0)
        try:
            return await self._meet(factory, (own, source, key), target, number)
        except BaseException:
            self.used_ports.discard(key)
            raise

    async def _meet(
        self, factory: Factory, near: tuple[Host, str | None, PortKey], target: Host, number: int
    ) -> tuple[Stream, Any]:
        """Connect a host, at an address and a port, to a server."""
        own, source, key = near
        await asyncio.sleep(self.delay)
        server = self.listening(target, number, own=target is own)
        if server is None:
            await asyncio.sleep(self.delay)
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"nobody listens on port {number} of {target.name}"
            )
        here = (source or (LOOPBACK if server.loopback else own.address), key[2])
        protocol = factory()
        stream = Stream(self, protocol, here, server.address)
        stream.port_key = key

        def meet(other: asyncio.BaseProtocol, there: Address) -> Stream:
            made = Stream(self, other, there, here)
            stream.peer, made.peer = made, stream
            return made

        server.accept(meet)
        await asyncio.sleep(self.delay)
        stream.start()
        return stream, protocol


def network_of(loop: Loop, hosts: Hosts, delay: float) -> Network:
    """Return the network that the world's ``sockets`` names, or that of an internet."""
    if hasattr(hosts, "internet"):
        from .internet_sockets import InternetNetwork

        return InternetNetwork(loop, hosts, delay)
    if getattr(getattr(hosts, "world", None), "sockets", "control") == "tcp":
        from .sockets import SocketNetwork

        return SocketNetwork(loop, hosts, delay)
    return Network(loop, hosts, delay)


def own_host() -> Host:
    """Return the host of the calling program. Raises RuntimeError if there is none."""
    host = host_here()
    if host is None:
        raise RuntimeError("only programs on simulated hosts have a network")
    return host


def bound_to(name: Any) -> str | None:
    """Return 127.0.0.1 if a server's name, or each of its names, is the loopback's; else None."""
    names = name if isinstance(name, list | tuple) else [name]
    return LOOPBACK if names and all(one in OWN for one in names) else None


def refuse_ipv6(name: Any = None, family: int = 0) -> None:
    """Raise socket.gaierror, an OSError, for an address of IPv6 or its family."""
    text = name.decode() if isinstance(name, bytes) else name
    is_address = isinstance(text, str) and _is_ipv6(text)
    if family in (0, socket.AF_INET) and not is_address:
        return
    what = f"{text} is an address of IPv6" if is_address else f"family is {family!r}"
    raise socket.gaierror(
        socket.EAI_ADDRFAMILY, f"{what}, and simulated hosts have no IPv6: use IPv4 or names"
    )


def address_pair(what: str, given: Any) -> tuple[Any, Any]:
    """Return the host and the port of an address. Raises TypeError for anything else."""
    if not isinstance(given, tuple | list) or len(given) < 2:
        raise TypeError(f"{what} is {given!r}, and not a host and a port, as ('h1', 7000)")
    return given[0], given[1]


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_ipv4(given: Any) -> bool:
    try:
        IPv4Address(given.decode() if isinstance(given, bytes) else str(given))
    except ValueError:
        return False
    return True


def port_number(given: Any) -> int:
    """Return a port's number; 0 for None. Raises OverflowError for a number that no port has, and
    socket.gaierror for what is no number, as asyncio does."""
    number = int(given) if isinstance(given, str | bytes) and given.isdigit() else given or 0
    if isinstance(number, int) and not 0 <= number <= LAST_PORT:
        raise OverflowError(f"the port is {given!r}: port must be 0-65535.")
    if not isinstance(number, int):
        raise socket.gaierror(
            socket.EAI_SERVICE, f"the port is {given!r}, and not a number from 0 to {LAST_PORT}"
        )
    return number


class Server(asyncio.AbstractServer):
    """What ``asyncio.start_server`` returns. It listens until it is closed.

    ``address``: that of the host, unless another is given. At 127.0.0.1 only its own host reaches
    it.
    """

    def __init__(
        self,
        network: Network,
        host: Host,
        port: int,
        factory: Factory,
        address: str | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.loopback = address == LOOPBACK
        self.address = (address or host.address, port)
        self._serving = True
        self._awaited = False  # by serve_forever
        self._network = network
        self._factory = factory
        self._context = contextvars.copy_context()
        self._closed: asyncio.Future[None] = network.loop.create_future()

    @property
    def sockets(self) -> tuple[Listening, ...]:
        """One object in place of a socket, which knows its name."""
        return () if self._closed.done() else (Listening(self.address),)

    def accept(self, meet: Callable[[asyncio.BaseProtocol, Address], Stream]) -> None:
        """Make the server's end of a connection, in the context of the program that listens."""
        self._context.run(self._accept, meet)

    def accept_tcp(self, start: Callable[[Factory], None]) -> None:
        """Start the server's end of a TCP connection, in the listening program's context."""
        self._context.run(start, self._factory)

    def _accept(self, meet: Callable[[asyncio.BaseProtocol, Address], Stream]) -> None:
        meet(self._factory(), self.address).start()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._serving and not self._closed.done()

    def takes(self, own: bool) -> bool:
        """Return whether a connection is accepted; ``own``: one of the server's own host."""
        return self.is_serving() and (own or not self.loopback)

    def hold(self) -> None:
        """Refuse connections until ``start_serving``."""
        self._serving = False

    async def start_serving(self) -> None:
        """Accept connections. Raises RuntimeError after ``close``."""
        self._check_open()
        self._serving = True

    async def serve_forever(self) -> None:
        """Accept connections until the server is closed, and close it if the task is cancelled.

        Raises RuntimeError after ``close``, and while another task awaits it.
        """
        if self._awaited:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        await self.start_serving()
        self._awaited = True
        try:
            await asyncio.shield(self._closed)
        finally:
            self._awaited = False
            self.close()

    def _check_open(self) -> None:
        if self._closed.done():
            raise RuntimeError(f"server {self!r} is closed")

    def __repr__(self) -> str:
        return f"<Server of {self.host.name} at {self.address[0]}:{self.port}>"

    def close(self) -> None:
        if not self._closed.done():
            self._network.forget(self)
            self._closed.set_result(None)

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


class Listening:
    """The methods of a socket that programs call on those of a server."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address


class Stream(CallsProtocol, WriteLimits, asyncio.Transport):
    """One end of a connection. What is written arrives in order after the network's delay."""

    def __init__(
        self, network: Network, protocol: asyncio.BaseProtocol, here: Address, there: Address
    ) -> None:
        options = PlainSocket(socket.SOCK_STREAM, here, there)
        super().__init__({"sockname": here, "peername": there, "socket": options})
        self.peer: Stream | None = None
        self._network = network
        self._protocol: Any = protocol
        self._context = contextvars.copy_context()
        self._inbox: deque[bytes | None] = deque()  # in transit, or held by pause_reading
        self._due = 0  # how many messages of the inbox have arrived
        self._paused = True  # start() resumes it
        self._closing = False
        self._ended = False  # connection_lost was called
        self.port_key: PortKey | None = None  # of a client
        self._wrote_eof = False

    def start(self) -> None:
        """Announce the connection to the protocol; both ends exist now."""
        announce(self._network.loop, self._protocol, self)
        self.resume_reading()

    # ---- out ----

    def write(self, data: bytes | bytearray | memoryview) -> None:
        check_bytes_like(data)
        if self._wrote_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if data and not self._closing:
            self._send(bytes(data))

    def _send(self, message: bytes | None) -> None:
        """Send a message to the other end; None is the end of the stream."""
        peer = self.peer
        if peer is not None and not peer._ended:
            peer._inbox.append(message)
            self._network.loop.call_later(self._network.delay, peer._arrived, context=peer._context)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._wrote_eof:
            self._wrote_eof = True
            self._send(None)

    def get_write_buffer_size(self) -> int:
        """Return 0: writes are never held back, and the limits of the buffer have no effect."""
        return 0

    # ---- in ----

    def _arrived(self) -> None:
        self._due += 1
        self._deliver()

    def _deliver(self) -> None:
        loop = self._network.loop
        while self._due and not self._paused and not self._closing:
            self._due -= 1
            message = self._inbox.popleft()
            if message is not None:
                self._give(loop, message)
            elif not self._call(loop, "eof_received", self._protocol.eof_received):
                self.close()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._network.loop.call_soon(self._deliver, context=self._context)

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    # ---- its end ----

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._force_close(None)

    def _force_close(self, error: BaseException | None) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._wrote_eof:
            self._send(None)
        self._network.loop.call_soon(self._end, error, context=self._context)

    def abort(self) -> None:
        self.close()

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self._ended = True
            if self.port_key is not None:
                self._network.used_ports.discard(self.port_key)
            self._protocol.connection_lost(error)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
