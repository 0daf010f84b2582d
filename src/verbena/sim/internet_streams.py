# SPDX-License-Identifier: Apache-2.0
"""Transports of asyncio over an internet's TCP connections and UDP sockets.

``InternetNetwork`` makes them. Protocols are called by the loop, in the context of their program,
and never from within the network's events.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
from collections import deque
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from verbena.internet import (
    AddressError,
    Message,
    MessageTooLongError,
    Node,
    NoRouteError,
    UdpArrival,
)
from verbena.internet.icmp import Kind, Unreachable
from verbena.internet.tcp_connection import TcpConnection
from verbena.internet.tcp_states import TcpState
from verbena.internet.udp import MAX_UDP_PAYLOAD

from .network import LOOPBACK, address_pair, port_number
from .transport_parts import (
    LINGER,
    CallsProtocol,
    PlainSocket,
    WriteLimits,
    announce,
    check_bytes_like,
    has_no_linger,
)

if TYPE_CHECKING:
    from .internet_sockets import InternetNetwork

__all__ = ["InternetDatagrams", "InternetStream"]

_STORED = {  # options without an effect here
    (socket.SOL_SOCKET, socket.SO_REUSEADDR),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    LINGER,  # close and abort ask has_no_linger
}


class InternetSocket:
    """What ``get_extra_info("socket")`` returns: addresses and options, and no I/O.

    TCP_NODELAY has an effect, and is set from the beginning, as by asyncio; SO_REUSEADDR and
    SO_KEEPALIVE are taken; SO_LINGER of 0 s makes the end a RST; any other option raises OSError
    (ENOPROTOOPT).
    """

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def __init__(
        self, connection: TcpConnection, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        self._connection = connection
        self._here, self._there = here, there
        self._values: dict[tuple[int, int], int | bytes] = {
            (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1
        }

    def getsockname(self) -> tuple[str, int]:
        return self._here

    def getpeername(self) -> tuple[str, int]:
        return self._there

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    @property
    def has_no_linger(self) -> bool:
        """Whether the program has set SO_LINGER to 0 s."""
        return has_no_linger(self._values.get(LINGER, 0))

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        sender = self._connection.sender
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_NODELAY):
            if sender is None or self._connection.state is TcpState.CLOSED:
                raise OSError(errno.EBADF, "the connection is closed")
            sender.no_delay = bool(value)
            sender.send()
        elif (level, option) not in _STORED:
            raise OSError(errno.ENOPROTOOPT, f"option {option} of level {level} is not simulated")
        self._values[level, option] = value

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        return self._values.get((level, option), 0)


class InternetStream(CallsProtocol, WriteLimits, asyncio.Transport):
    """One end of a TCP connection. Bytes that no window lets leave are the transport's buffer."""

    def __init__(
        self,
        network: InternetNetwork,
        connection: TcpConnection,
        here: tuple[str, int],
        there: tuple[str, int],
    ) -> None:
        self._options = InternetSocket(connection, here, there)
        super().__init__({"sockname": here, "peername": there, "socket": self._options})
        self._network = network
        self._connection = connection
        self._protocol: Any = None
        self._error: OSError | None = None
        self._broken: OSError | None = None  # what the next write finds
        self._context = contextvars.copy_context()
        self._inbox: deque[bytes] = deque()
        self._at_end = self._told_end = False  # the peer's FIN has come; the protocol knows
        self._paused = self._closing = self._ended = False
        self._wrote_eof = self._write_paused = False
        connection.on_data = self._take
        connection.on_end = self._take_end
        connection.on_close = self._take_close
        connection.on_progress = self._take_room
        network.keep(self)

    def start(self, protocol: Any) -> None:
        """Announce the connection to the protocol, in the calling program's context."""
        self._context = contextvars.copy_context()
        self._protocol = protocol
        if self._connection.sender is not None:
            self._connection.sender.no_delay = True
        announce(self._network.loop, protocol, self)
        if self._connection.state is TcpState.CLOSED:  # since the program was woken
            reset = ConnectionResetError(errno.ECONNRESET, "the peer has reset it")
            self._take_close(self._error or reset)
        self._network.soon(self._deliver, context=self._context)

    # ---- out ----

    def write(self, data: bytes | bytearray | memoryview) -> None:
        check_bytes_like(data)
        if self._wrote_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if data and self._broken is not None:
            self._fail(self._broken)
        if not data or self._closing:
            return
        self._connection.write(bytes(data))
        if self.get_write_buffer_size() > self._high and not self._write_paused:
            self._write_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._wrote_eof and not self._closing:
            self._wrote_eof = True
            self._connection.end()

    def get_write_buffer_size(self) -> int:
        sender = self._connection.sender
        return 0 if sender is None else sender.unsent

    def _take_room(self) -> None:
        if self._write_paused and self.get_write_buffer_size() <= self._low:
            self._write_paused = False
            self._network.soon(self._protocol.resume_writing, context=self._context)
        if self._closing and self.get_write_buffer_size() == 0:
            self._end_soon(None)

    # ---- in ----

    def _take(self, data: bytes) -> None:
        if self._closing:
            return
        self._inbox.append(data)
        self._deliver_soon()

    def _take_end(self) -> None:
        self._at_end = True
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        if self._protocol is not None and not self._paused:
            self._network.soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        """Give the program what has arrived, unless it has paused."""
        while self._inbox and not self._paused and not self._closing:
            self._give(self._network.loop, self._inbox.popleft())
        over = self._at_end and not self._inbox and not self._told_end
        if over and not self._paused and not self._closing:
            self._told_end = True
            protocol, loop = self._protocol, self._network.loop
            if not self._call(loop, "eof_received", protocol.eof_received):
                self.close()

    def pause_reading(self) -> None:
        if not self._paused and not self._closing:
            self._paused = True
            self._connection.pause()

    def resume_reading(self) -> None:
        if self._paused and not self._closing:
            self._paused = False
            self._connection.resume()
            self._deliver_soon()

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    # ---- its end ----

    def _take_close(self, error: OSError | None) -> None:
        """The connection is over. Data that came before a RST is lost, as in Linux; after the
        peer's end a RST is the next write's error."""
        self._error = error
        is_reset = isinstance(error, ConnectionResetError)
        if is_reset and self._told_end and not self._closing and not self._wrote_eof:
            self._broken = BrokenPipeError(errno.EPIPE, "Broken pipe")
            if self.get_write_buffer_size():
                self._fail(self._broken)
        elif error is not None:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._closing = True
        self._end_soon(error)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is written, then the end; the program reads no more."""
        if self._closing:
            return
        self._closing = True
        if self._inbox or self._options.has_no_linger:  # unread: a RST (RFC 2525, 2.17)
            self._connection.abort()
        else:
            self._connection.close()
        if self._connection.state is TcpState.CLOSED or self.get_write_buffer_size() == 0:
            self._end_soon(None)

    def abort(self) -> None:
        """Forget what was never sent, and close, as Linux does: a RST follows if data was not
        read, or with SO_LINGER of 0 s."""
        self._force_close(None)

    def _force_close(self, error: BaseException | None) -> None:
        self._end_soon(error)
        sender = self._connection.sender
        if sender is not None and self._connection.state is not TcpState.CLOSED:
            sender.drop_unsent()
        if self._closing and self._options.has_no_linger:
            self._connection.abort()
        self.close()

    def _end_soon(self, error: BaseException | None) -> None:
        if not self._ended and self._protocol is not None:
            self._ended = True
            self._network.soon(self._protocol.connection_lost, error, context=self._context)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


class InternetDatagrams(asyncio.DatagramTransport):
    """A datagram endpoint at a port of a node. ``peer``: of a connected one.

    Raises AddressError for a port that is taken.
    """

    def __init__(
        self,
        network: InternetNetwork,
        node: Node,
        protocol: Any,
        source: IPv4Address | None,
        port: int,
        peer: tuple[IPv4Address, int] | None,
        address: str | None = None,
    ) -> None:
        self._socket = node.udp.open(self._take, port)
        if address == LOOPBACK:
            self._socket.admits = lambda source: source in node.addresses
        self._socket.on_error = self._take_error
        here = (address or str(source or node.address), self._socket.port)
        there = None if peer is None else (str(peer[0]), peer[1])
        options = PlainSocket(socket.SOCK_DGRAM, here, there)
        super().__init__({"sockname": here, "peername": there, "socket": options})
        self._network = network
        self._protocol = protocol
        self._source = source
        self._peer = there
        self._context = contextvars.copy_context()
        self._closing = False
        network.keep(self)

    def start(self) -> None:
        """Announce the endpoint to its protocol."""
        self._protocol.connection_made(self)

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send a datagram; what the node cannot send is an error of the protocol."""
        check_bytes_like(data)
        if self._peer is not None and addr not in (None, self._peer):
            raise ValueError(f"Invalid address: must be None or {self._peer}")
        if addr is None and self._peer is None:
            raise ValueError("the endpoint is not connected, so sendto needs an address")
        if self._closing:
            return
        name, port = address_pair("addr", self._peer if addr is None else addr)
        port = port_number(port)
        if len(data) > MAX_UDP_PAYLOAD:
            text = f"a datagram has {len(data)} bytes, and at most {MAX_UDP_PAYLOAD} fit"
            self._protocol.error_received(OSError(errno.EMSGSIZE, text))
            return
        try:
            address = self._network.address_of(name)
            self._socket.send(bytes(data), address, port, source=self._source)
        except socket.gaierror as error:  # an unknown name
            self._protocol.error_received(error)
        except NoRouteError as error:
            self._protocol.error_received(OSError(errno.ENETUNREACH, str(error)))
        except MessageTooLongError as error:
            self._protocol.error_received(OSError(errno.EMSGSIZE, str(error)))
        except AddressError as error:  # port 0
            self._protocol.error_received(OSError(errno.EINVAL, str(error)))

    def _take(self, arrival: UdpArrival) -> None:
        source = (str(arrival.source), arrival.source_port)
        if not self._closing and self._peer in (None, source):
            call = self._protocol.datagram_received
            self._network.soon(call, arrival.payload, source, context=self._context)

    def _take_error(self, message: Message, address: IPv4Address, port: int) -> None:
        """A connected socket is told of ICMP errors (RFC 1122, 4.1.3.3)."""
        if self._closing or self._peer != (str(address), port):
            return
        refused = (message.kind, message.code) == (Kind.UNREACHABLE, Unreachable.PORT)
        number = errno.ECONNREFUSED if refused else errno.EHOSTUNREACH
        error = OSError(number, message.text)
        self._network.soon(self._protocol.error_received, error, context=self._context)

    def get_write_buffer_size(self) -> int:
        """Return 0: a datagram leaves at once, or waits in the queue of its link."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Datagrams are never held back, so the limits have no effect."""

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._socket.close()
            self._network.soon(self._protocol.connection_lost, None, context=self._context)

    def abort(self) -> None:
        self.close()

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
