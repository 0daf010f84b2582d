# SPDX-License-Identifier: Apache-2.0
"""UDP of programs over the simulated fabric, as datagram transports of asyncio.

``SocketNetwork.open_datagrams`` makes a ``DatagramSocket``. A datagram that is longer than a packet
is sent in fragments (RFC 791), and is lost with any of them. One to a port without a socket is
answered with ICMP's port unreachable, which a connected socket gets as an error.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from .callbacks import PS
from .kernel import datagram_in
from .network import LOOPBACK, address_pair, port_number
from .transport_parts import HIGH_WATER, PlainSocket

if TYPE_CHECKING:
    from .hosts import Host
    from .kernel import Kernel
    from .sockets import SocketNetwork

__all__ = ["DatagramSocket"]

UDP, ICMP = 17, 1
UDP_HEADER, IP_AND_TCP = 8, 40
LONGEST = 65507
"""Bytes of a datagram over IPv4: 65535 less both headers."""
UNREACHABLE = 8 + 20 + 8  # bytes of ICMP: its header, and the datagram's first headers
BACKLOG = 212_992  # bytes that wait for the link: the send buffer of Linux
_HEAD = struct.Struct(">BBHH")


class DatagramSocket(asyncio.DatagramTransport):
    """A datagram endpoint at a port of a host. ``peer``: of a connected one."""

    def __init__(
        self,
        network: SocketNetwork,
        host: Host,
        port: int,
        protocol: Any,
        peer: tuple[str, int] | None,
        address: str | None = None,
    ) -> None:
        here = (address or host.address, port)
        self.loopback = address == LOOPBACK  # takes datagrams of its own host alone
        options = PlainSocket(socket.SOCK_DGRAM, here, peer)
        super().__init__({"sockname": here, "peername": peer, "socket": options})
        self.network, self.host, self.port, self.peer = network, host, port, peer
        self._protocol = protocol
        self._context = contextvars.copy_context()
        self._closing = False
        self._waiting: deque[tuple[bytes, tuple[str, int]]] = deque()
        self._waits = 0  # bytes of them
        self._flush_due = False  # a timer will call _flush_later: one, however many wait
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._paused = False
        self._kernel = network.kernel(host.ports[0])
        self._charged = False  # the processor is about to send the first that waits

    def start(self) -> None:
        """Announce the endpoint to its protocol."""
        self._protocol.connection_made(self)

    # ---- out ----

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send a datagram. The protocol gets the error of one that cannot leave: EMSGSIZE if it is
        too long, EINVAL for port 0, and socket.gaierror for an unknown name."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        if self.peer is not None and addr not in (None, self.peer):
            raise ValueError(f"Invalid address: must be None or {self.peer}")
        if addr is None and self.peer is None:
            raise ValueError("the endpoint is not connected, so sendto needs an address")
        if self._closing:
            return
        host, port = address_pair("addr", self.peer if addr is None else addr)
        to = str(host), port_number(port)
        error = self._refusal(len(data), to)
        if error is not None:
            self._protocol.error_received(error)
            return
        self._waiting.append((bytes(data), to))
        self._waits += len(data)
        if not self._flush_due:
            self._flush()
        if self._waits > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def _refusal(self, size: int, to: tuple[str, int]) -> OSError | None:
        """Return the error of a datagram that cannot leave, or None."""
        if size > LONGEST:
            text = f"a datagram has {size} bytes, and at most {LONGEST} fit"
            return OSError(errno.EMSGSIZE, text)
        if not to[1]:
            return OSError(errno.EINVAL, "no datagram can be sent to port 0")
        try:
            self.network.find_host(to[0])
        except socket.gaierror as error:
            return error
        return None

    def _backlog(self) -> int:
        """Return bytes that wait for the host's link, by the time that it needs for them."""
        core = self.network.core
        port = self.host.ports[0]
        return core.backlog(port) * core.rate(port) // (8 * PS)

    def _flush(self) -> None:
        while self._waiting:
            if self._backlog() > BACKLOG:
                rest = self.network.core.backlog(self.host.ports[0])
                self._flush_due = True
                self.network.after(rest // 2, self._flush_later)
                return
            if self._charged:
                return
            if self._kernel is None or self.network.find_host(self._waiting[0][1][0]) is self.host:
                self._send_first()
            else:
                self._charge(self._kernel)

    def _send_first(self) -> None:
        data, to = self._waiting.popleft()
        self._waits -= len(data)
        self._send(data, to)

    def _charge(self, kernel: Kernel) -> None:
        """Let the processor send the first datagram that waits."""
        self._charged = True
        size = len(self._waiting[0][0])
        send = partial(self._context.copy().run, self._send_charged)
        kernel.send_datagram(size, len(self._fragments(size)), send)

    def _send_charged(self) -> None:
        self._charged = False
        if self._waiting:  # it may have been aborted
            self._send_first()
            if not self._flush_due:
                self._flush_later()

    def _flush_later(self) -> None:
        self._flush_due = False
        self._flush()
        if self._paused and self._waits <= self._low:
            self._paused = False
            self._context.run(self._protocol.resume_writing)
        if self._closing and not self._waiting:
            self._forget(None)

    def _send(self, data: bytes, to: tuple[str, int]) -> None:
        network, target = self.network, self.network.find_host(to[0])
        if target is self.host:
            network.loop.call_later(network.delay, self._arrive_here, to[1], data)
            return
        ends = network.interfaces(self.host, target, to[0])
        source = network.address_of(ends[0]), self.port
        head = _HEAD.pack(UDP, 0, self.port, to[1])

        def arrive() -> None:
            if not _arrive(network, target, to[1], data, source, kernel):
                icmp = _HEAD.pack(ICMP, 3, 0, 0)
                network.send_packet(ends[::-1], UNREACHABLE, icmp, 0, self._take_unreachable)

        fragments, kernel = self._fragments(len(data)), network.kernel(ends[1])
        taken = arrive
        if kernel is not None:
            arrived = datagram_in(len(fragments), len(data), arrive)
            taken = partial(kernel.receive, arrived)
        network.send_parcel(ends, fragments, head, self.port << 8 ^ to[1], taken)

    def _arrive_here(self, port: int, data: bytes) -> None:
        """A datagram to the own host has come; without a socket there the error comes at once."""
        if not _arrive(self.network, self.host, port, data, self.here, own=True):
            self._take_unreachable()

    def _fragments(self, length: int) -> list[int]:
        """Return the bytes after the IP header of each packet: all but the last are a multiple of 8
        (RFC 791, 3.2)."""
        most = self.network.core.segment + IP_AND_TCP - 20
        left = UDP_HEADER + length
        if left <= most:
            return [left]
        most -= most % 8
        return [most] * ((left - 1) // most) + [(left - 1) % most + 1]

    # ---- in ----

    @property
    def here(self) -> tuple[str, int]:
        """The address and port of the socket."""
        return self.host.address, self.port

    def take(self, data: bytes, source: tuple[str, int]) -> None:
        """A datagram has come. A connected socket takes those of its peer alone."""
        if not self._closing and self.peer in (None, source):
            self._context.run(self._protocol.datagram_received, data, source)

    def _take_unreachable(self) -> None:
        if self.peer is not None and not self._closing:
            error = ConnectionRefusedError(errno.ECONNREFUSED, "no socket has that port there")
            self._context.run(self._protocol.error_received, error)

    # ---- its end ----

    def get_write_buffer_size(self) -> int:
        return self._waits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = (4 * low if low else HIGH_WATER) if high is None else high
        self._low = self._high // 4 if low is None else low

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._waiting:
                self._forget(None)

    def abort(self) -> None:
        self._closing = True
        self._waiting.clear()
        self._forget(None)

    def _forget(self, error: Exception | None) -> None:
        key = (self.host.number, self.port)
        if self.network.datagrams.get(key) is self:
            del self.network.datagrams[key]
            self.network.used_ports.discard((UDP, *key))
            self.network.loop.call_soon(
                self._protocol.connection_lost, error, context=self._context
            )

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


def _arrive(
    network: SocketNetwork,
    target: Host,
    port: int,
    data: bytes,
    source: tuple[str, int],
    kernel: Kernel | None = None,
    *,
    own: bool = False,
) -> bool:
    """Give a datagram to the socket of a port, whose program the processor wakes; ``own``: one of
    its own host. False: there is none, or one at 127.0.0.1 for others."""
    found = network.datagrams.get((target.number, port))
    if found is None or (found.loopback and not own):
        return False
    if kernel is not None:
        kernel.read(0, len(data), partial(found.take, data, source))
    else:
        found.take(data, source)
    return True
