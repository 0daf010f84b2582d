# SPDX-License-Identifier: Apache-2.0
"""The sockets of programs in a world with ``sockets="tcp"``: TCP and UDP over the simulated links.

``loop.Loop`` has a ``SocketNetwork`` in place of the control network. It finds addresses and ports,
sends parcels (single packets: SYN, SYN-ACK, RST and datagrams), and gives each socket the news that
the core has of it (``SocketCore``). ``tcp_sockets.py`` has connections and ``udp_sockets.py``
datagrams. A host reaches itself without the fabric. On a host with an inside ``kernel.Kernel``
charges the processor for all of it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from ._world import SocketCore, inside_of
from .callbacks import PS, Callback
from .errors import NotSimulated
from .hosts import Host, Hosts
from .kernel import Arrived, Kernel
from .network import TCP, Factory, Network, bound_to, port_number
from .network import own_host as own

if TYPE_CHECKING:
    from .loop import Loop
    from .tcp_sockets import TcpConnection
    from .udp_sockets import DatagramSocket

__all__ = ["ACK_DELAY", "Parcel", "SocketNetwork"]

ACK_DELAY = 40 * 10**9
"""ps: the delayed acknowledgement timer, unless the world's ``tcp`` has another (Linux: 40 ms)."""
NEWS_PARCEL, NEWS_LOST = 16, 32  # enum vb_sim_news
UDP, ICMP = 17, 1
_HEAD = struct.Struct(">BBHHII")  # protocol, flags, ports, sequence and acknowledgement numbers

Arrival = Callable[[], None]


class Parcel:
    """A packet under way, or the fragments of one. ``arrive`` is called when all have come."""

    __slots__ = ("arrive", "left")

    def __init__(self, arrive: Arrival, left: int) -> None:
        self.arrive: Arrival | None = arrive  # None: a fragment was lost
        self.left = left


class SocketNetwork(Network):
    """The sockets of all hosts of a world, by host and port."""

    def __init__(self, loop: Loop, hosts: Hosts, delay: float) -> None:
        super().__init__(loop, hosts, delay)
        self.core = SocketCore(hosts.world)
        self.ack_delay = self.core.ack_delay or ACK_DELAY
        self.sockets: dict[int, TcpConnection] = {}  # by the number of the core's socket
        self.datagrams: dict[tuple[int, int], DatagramSocket] = {}
        self._parcels: dict[int, Parcel] = {}
        self._numbers = count(1)
        self._kernels: dict[int, Kernel | None] = {}  # by host of the world; None: no inside
        hosts.attachments.watch_sockets(Callback(self._take_news, (), loop_context()))

    # ---- processors ----

    def kernel(self, port: int) -> Kernel | None:
        """Return what charges the processor of a host of the world, None without an inside."""
        if port not in self._kernels:
            inside = inside_of(self._hosts.world, port)
            self._kernels[port] = None
            if inside is not None:
                made = Kernel(self.loop, lambda: self.now, inside, self.core.segment)
                self._kernels[port] = made
        return self._kernels[port]

    # ---- packets ----

    def send_parcel(
        self, ports: tuple[int, int], sizes: list[int], head: bytes, hash_: int, arrive: Arrival
    ) -> None:
        """Send a packet, or fragments with these bytes after their IP headers, between two hosts of
        the world."""
        number = next(self._numbers)
        self._parcels[number] = Parcel(arrive, len(sizes))
        for size in sizes:
            self.core.send(*ports, number, size, hash_, head)

    def send_control(
        self,
        ends: tuple[int, int],
        own_port: int,
        peer_port: int,
        flags: int,
        arrive: Arrival,
        *,
        calls: int = 0,
    ) -> None:
        """Send a TCP segment without data, of 20 bytes, and 12 of options in a SYN;
        ``calls`` as ``send_packet`` has it."""
        head = _HEAD.pack(TCP, flags, own_port, peer_port, 0, 1)
        size = 40 if flags & 2 else 20
        self.send_packet(ends, size, head, own_port << 8 ^ peer_port, arrive, calls=calls)

    def send_packet(
        self,
        ends: tuple[int, int],
        size: int,
        head: bytes,
        hash_: int,
        arrive: Arrival,
        *,
        calls: int = 0,
    ) -> None:
        """Send a packet without data, which the processors of both ends handle, if they have an
        inside; ``calls``: the system calls by which the program has asked for it."""
        near, far = self.kernel(ends[0]), self.kernel(ends[1])
        taken = arrive if far is None else lambda: far.receive(Arrived(arrive))

        def send() -> None:
            self.send_parcel(ends, [size], head, hash_, taken)

        if near is None:
            send()
        else:
            near.send_packet(send, calls=calls)

    def _take_news(self) -> None:
        for number, what in self.core.news():
            if what & (NEWS_PARCEL | NEWS_LOST):
                self._take_parcel(number, lost=what == NEWS_LOST)
            elif number in self.sockets:
                self.sockets[number].take_news(what)

    def _take_parcel(self, number: int, *, lost: bool) -> None:
        parcel = self._parcels[number]
        parcel.left -= 1
        if lost:
            parcel.arrive = None
        if not parcel.left:
            del self._parcels[number]
            if parcel.arrive is not None:
                parcel.arrive()

    # ---- addresses ----

    def interfaces(
        self, source: Host, target: Host, name: Any, bound: str | None = None
    ) -> tuple[int, int]:
        """Return the ports, which are hosts of the world, by which two hosts reach each other.
        ``bound``: the address of the source, unless any will do.

        Raises NotSimulated for ports of InfiniBand.
        """
        rank = target.addresses.index(name) if name in target.addresses else 0
        near = source.addresses.index(bound) if bound else min(rank, len(source.ports) - 1)
        ends = source.ports[near], target.ports[rank]
        for host, port in zip((source, target), ends, strict=True):
            if self.core.is_infiniband(port):
                raise NotSimulated(
                    f'{host.name} has a port of InfiniBand, and sockets="tcp" need Ethernet: leave '
                    "out sockets, and connections go beside the fabric"
                )
        return ends

    def address_of(self, port: int) -> str:
        """Return the IPv4 address of a host of the world."""
        return socket.inet_ntoa((0x0A000000 + port + 1).to_bytes(4, "big"))

    # ---- connections and datagrams ----

    async def connect(
        self, factory: Factory, name: Any, port: Any, local: tuple[Any, Any] | None = None
    ) -> tuple[Any, Any]:
        from .tcp_sockets import connect

        here, target = own(), self._find(name)
        if target is here:
            return await self.connect_beside(factory, name, port, local)
        return await connect(self, here, target, name, port_number(port), factory, local)

    async def open_datagrams(
        self, factory: Factory, local: tuple[Any, Any] | None, remote: tuple[Any, Any] | None
    ) -> tuple[Any, Any]:
        """Return the transport and the protocol of a datagram endpoint of the calling host.

        Raises OSError: EADDRINUSE, EADDRNOTAVAIL; and socket.gaierror for an unknown name.
        """
        from .udp_sockets import DatagramSocket

        here = own()
        if local is not None:
            self.own_address(here, local[0])
        number = (port_number(local[1]) if local else 0) or self.free_port(UDP, here)
        if (here.number, number) in self.datagrams:
            raise OSError(errno.EADDRINUSE, f"{here.name} has a socket at UDP port {number}")
        peer = None
        if remote is not None:
            peer = (self._find(remote[0]).address, port_number(remote[1]))
        address = bound_to(local[0]) if local else None
        made = DatagramSocket(self, here, number, factory(), peer, address)
        self.datagrams[here.number, number] = made
        self.used_ports.add((UDP, here.number, number))
        made.start()
        return made, made.get_protocol()

    def find_host(self, name: Any) -> Host:
        """Return the host with a name or an address. Raises socket.gaierror."""
        return self._find(name)

    @property
    def now(self) -> int:
        """The world's time in ps."""
        return int(self._hosts.attachments.now)

    def after(self, ps: int, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after so many ps."""
        return self.loop.call_at((self.now + ps) / PS, call)  # type: ignore[return-value]


def loop_context() -> Any:
    """Return an empty context, in which no code is on a host."""
    import contextvars

    return contextvars.Context()
