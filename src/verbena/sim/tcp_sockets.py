# SPDX-License-Identifier: Apache-2.0
"""TCP connections of programs over the simulated fabric, as transports of asyncio.

``SocketNetwork.connect`` sets one up: SYN, SYN-ACK and ACK are parcels, which are sent again by
timers (RFC 9293, 3.5; RFC 6298). Then each end is a ``TcpConnection``. It keeps the bytes of what
it writes until the peer's program has read them; the core counts them, sends segments, and says how
many have arrived in order. An end lives until both streams are acknowledged, or until a RST.

On a host with an inside each of these waits for the processor (``kernel.Kernel``). The window is
then what the program has not read, since a processor that is too slow must hold the sender back.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .kernel import PAGE, SEGMENT, Arrived, parts
from .network import LOOPBACK, Factory, PortKey, Server, port_number
from .tcp_options import ConnectionSocket
from .transport_parts import CallsProtocol, WriteLimits, announce, check_bytes_like

if TYPE_CHECKING:
    from random import Random

    from .hosts import Host
    from .kernel import Kernel
    from .sockets import SocketNetwork

__all__ = ["TcpConnection", "connect"]

SYN, ACK, RST, SYN_ACK = 0x02, 0x10, 0x14, 0x12  # flags; a RST has an ACK
NEWS_DATA, NEWS_ROOM, NEWS_FAILED, NEWS_STRAY = 1, 2, 4, 8  # enum vb_sim_news
FIRST_TIMEOUT = 10**12  # ps: of a SYN (RFC 6298, 2.1)
SYN_RETRIES = 6  # as Linux: 127 s
JITTER_SHARE = 8  # of a SYN's timeout one part in so many is added at random
READ_MOST = 256 << 10  # bytes of one data_received
SEND_WINDOWS = 4
"""Congestion windows that the send buffer has room for. The program is asked for more when a third
is free, and slow start has grown the window by no more than that third by then."""
RECEIVE_WINDOWS = 2  # that it has room for at most: two thirds of it keep one full


class Handshake:
    """A connection that is being set up. Both ends' timers are here.

    CLOSED --SYN--> SYN_SENT --SYN-ACK--> ESTABLISHED; the listener: SYN --> SYN_RECEIVED --ACK or
    data--> ESTABLISHED. A RST ends it in any state, and so does the last timeout.
    """

    def __init__(self, network: SocketNetwork, ends: tuple[int, int], ports: tuple[int, int]):
        self.network, self.ends, self.ports = network, ends, ports
        self.established: asyncio.Future[None] = network.loop.create_future()
        self.over = False  # the caller has it, or has given up
        self.server: Server | None = None
        self.accepted = False
        self.pair: tuple[TcpConnection, TcpConnection] | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._randoms: list[Random] = []  # of the two hosts

    def begin(self, own: Host, target: Host) -> None:
        """Send the SYN, and again until there is an answer."""
        self._randoms = [own.random, target.random]
        self._repeat(0, SYN, lambda: self._take_syn(target), 0)

    def send(self, end: int, flags: int, arrive: Any, *, calls: int = 0) -> None:
        """Send a segment without data from one of the ends. ``calls``: the system calls of its
        program for that."""
        hosts = self.ends if end == 0 else self.ends[::-1]
        ports = self.ports if end == 0 else self.ports[::-1]
        self.network.send_control(hosts, *ports, flags, arrive, calls=calls)

    def _repeat(
        self, end: int, flags: int, arrive: Any, tries: int, began: int | None = None
    ) -> None:
        """Send a SYN or its answer, and again after 1, 3, 7 … s. These times have a jitter, so that
        connections that have lost their SYN together do not meet again in each round."""
        now = self.network.now
        first = now if began is None else began
        self.send(end, flags, arrive, calls=int(flags == SYN and not tries))

        def again() -> None:
            if tries < SYN_RETRIES:
                jitter = self._randoms[end].randrange((FIRST_TIMEOUT << tries) // JITTER_SHARE)
                self._timers[end] = self.network.after(jitter, more)
            else:
                self._time_out(end)

        def more() -> None:
            self._repeat(end, flags, arrive, tries + 1, first)

        due = first + (FIRST_TIMEOUT << tries + 1) - FIRST_TIMEOUT
        self._timers[end] = self.network.after(due - now, again)

    def stop(self, end: int) -> None:
        """Stop the timer of an end."""
        if end in self._timers:
            self._timers.pop(end).cancel()

    def _time_out(self, end: int) -> None:
        if end == 0 and not self.established.done():
            self.established.set_exception(
                TimeoutError(errno.ETIMEDOUT, "no answer to a SYN: is the peer reachable?")
            )

    # ---- the listener ----

    def _take_syn(self, target: Host) -> None:
        server = self.server or self.network.listening(target, self.ports[1])
        if server is None:
            self.send(1, RST, self._take_reset)
        elif self.server is None:
            self.server = server
            self._repeat(1, SYN_ACK, self._take_syn_ack, 0)
        else:
            self.send(1, SYN_ACK, self._take_syn_ack)

    def take_ack(self) -> None:
        """The listener has the ACK, or data: accept the connection if the server still listens."""
        if self.accepted or self.pair is None:
            return
        self.accepted = True
        self.stop(1)
        assert self.server is not None
        if self.server.is_serving():
            self._by_program(1, self._accept)
        else:
            self.pair[1].reset()

    def _accept(self) -> None:
        assert self.server is not None
        assert self.pair is not None
        if not self.pair[1].gone:  # a RST may have come meanwhile
            self.server.accept_tcp(self.pair[1].start_accepted)

    def _by_program(self, end: int, call: Callable[[], None]) -> None:
        """Wake the program of an end, which makes a system call: at once without an inside."""
        kernel = self.network.kernel(self.ends[end])
        if kernel is None:
            call()
        else:
            kernel.call(call)

    def _take_abort(self) -> None:
        self.stop(1)

    # ---- the caller ----

    def _take_reset(self) -> None:
        self.stop(0)
        if not self.established.done():
            self.established.set_exception(
                ConnectionRefusedError(
                    errno.ECONNREFUSED, f"nobody listens on port {self.ports[1]} there"
                )
            )

    def _take_syn_ack(self) -> None:
        self.stop(0)
        if self.over and self.pair is None:
            self.send(0, RST, self._take_abort)
            return
        if self.pair is None:
            self._open()
        self.send(0, ACK, self.take_ack)
        if not self.established.done():
            self._by_program(0, self._establish)

    def _establish(self) -> None:
        if not self.established.done():
            self.established.set_result(None)

    def _open(self) -> None:
        network = self.network
        number = network.core.open(*self.ends, *self.ports, network.ack_delay)
        pair = TcpConnection(self, 0, number), TcpConnection(self, 1, number + 1)
        pair[0].peer, pair[1].peer = pair[1], pair[0]
        network.sockets[number], network.sockets[number + 1] = pair
        self.pair = pair


async def connect(
    network: SocketNetwork,
    own: Host,
    target: Host,
    name: Any,
    port: int,
    factory: Factory,
    local: tuple[Any, Any] | None,
) -> tuple[TcpConnection, Any]:
    """Connect a host to a port of another.

    Raises ConnectionRefusedError and TimeoutError; for ``local`` OSError (EADDRINUSE,
    EADDRNOTAVAIL, and EINVAL at the loopback, which reaches no other host) and socket.gaierror.
    """
    bound = network.own_address(own, local[0]) if local else None
    wanted = port_number(local[1]) if local else 0
    if bound == LOOPBACK:
        raise OSError(errno.EINVAL, f"{LOOPBACK} reaches {own.name} alone, and not {target.name}")
    ends = network.interfaces(own, target, name, bound)
    key = network.take_port(own, wanted)
    made = Handshake(network, ends, (key[2], port))
    made.begin(own, target)
    try:
        await made.established
    except BaseException:
        made.over = True
        made.stop(0)
        network.used_ports.discard(key)
        if made.pair is not None:
            made.pair[0].reset()
        raise
    made.over = True
    assert made.pair is not None
    connection = made.pair[0]
    connection.port_key = key
    protocol = factory()
    connection.start(protocol)
    return connection, protocol


class TcpConnection(CallsProtocol, WriteLimits, asyncio.Transport):
    """One end of a TCP connection."""

    peer: TcpConnection

    def __init__(self, handshake: Handshake, end: int, number: int) -> None:
        super().__init__()
        network = handshake.network
        self.network, self.number, self._handshake, self._end = network, number, handshake, end
        addresses = [
            (network.address_of(host), port)
            for host, port in zip(handshake.ends, handshake.ports, strict=True)
        ]
        self.here, self.there = addresses[end], addresses[1 - end]
        self.port_key: PortKey | None = None
        self._kernel = network.kernel(handshake.ends[end])
        self._send_buffer = RECEIVE_WINDOWS * network.core.window if self._kernel else 0
        self._tunes = self._kernel is None  # the send buffer grows, until SO_SNDBUF is set
        self.options = ConnectionSocket(self)
        self._extra = {"sockname": self.here, "peername": self.there, "socket": self.options}
        self._protocol: Any = None
        self._context: Any = None
        # Views: a part of one is no copy of the rest, which may be long.
        self._sent: deque[memoryview] = deque()  # given to the core, not read by the peer's program
        self._waiting: deque[memoryview] = deque()  # for room in the send buffer
        self._waits = 0  # bytes of them
        self._write_paused = False
        self._read = 0  # bytes of the peer's stream that the program has
        self._paused = False
        self._got_eof = False
        self._wrote_eof = self._closing = self._ended = False
        self._asked_eof = False  # by write_eof; close sets _wrote_eof alone
        self.gone = False  # the core has it no more
        self._given = 0  # bytes that the core has, once the processor has copied them
        self._copying = 0  # bytes that it still copies
        self._acked = 0  # bytes of acknowledgements that the processor has taken
        self._seen = self._frames = 0  # bytes and frames of the peer's stream, as they arrive
        self._ready, self._ready_end = 0, False  # what the processor has handled of it
        self._reads = False  # the program is about to read
        if self._kernel is not None:
            network.core.read(number, 0, False)
        self._broken: OSError | None = None  # what the next write finds

    # ---- its beginning ----

    def start(self, protocol: Any) -> None:
        """Announce the connection to the protocol, in the calling program's context."""
        self._context = contextvars.copy_context()
        self._protocol = protocol
        announce(self.network.loop, protocol, self)
        self._deliver()

    def start_accepted(self, factory: Factory) -> None:
        """The same for a server's end, whose program the server calls."""
        self.start(factory())

    # ---- out ----

    def write(self, data: bytes | bytearray | memoryview) -> None:
        check_bytes_like(data)
        if self._asked_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if data and self._broken is not None:
            self._fail(self._broken)
        if not data or self._closing or self.gone:
            return
        self._waiting.append(memoryview(bytes(data)))
        self._waits += len(data)
        self._fill()
        if self._waits > self._high and not self._write_paused:
            self._write_paused = True
            self._protocol.pause_writing()

    @property
    def send_buffer(self) -> int:
        """Bytes of the send buffer. It grows with the congestion window, as in Linux, to twice the
        receive window; on a host with an inside it is that from the beginning."""
        if self._tunes and not self.gone:
            core = self.network.core
            window = round(SEND_WINDOWS * self.counts()[2]) * core.segment
            self._send_buffer = max(self._send_buffer, min(window, RECEIVE_WINDOWS * core.window))
        return self._send_buffer

    @send_buffer.setter
    def send_buffer(self, size: int) -> None:
        self._send_buffer, self._tunes = size, False

    def _fill(self, *, woken: bool = False) -> None:
        """Give the core what the send buffer has room for. ``woken``: the program slept."""
        core, number, moved = self.network.core, self.number, 0
        size = self.send_buffer
        room = size - core.unacked(number) - self._copying
        while self._waiting and room > moved:
            data = self._waiting.popleft()
            if len(data) > room - moved:
                self._waiting.appendleft(data[room - moved :])
                data = data[: room - moved]
            self._sent.append(data)
            moved += len(data)
        self._waits -= moved
        ended = self._wrote_eof and not self._waiting
        if self._kernel is not None:
            self._write_by(self._kernel, moved, ended, woken=woken)
            return
        core.ask_room(number, size * 2 // 3 if self._waiting else None)
        if moved or ended:
            core.write(number, moved, ended)

    def _write_by(self, kernel: Kernel, moved: int, ended: bool, *, woken: bool) -> None:
        """Let the processor copy and send what the core is to have."""
        self._copying += moved
        self._ask_room()
        kernel.write(moved, self._give_core, woken=woken)
        if ended:
            kernel.send_packet(partial(self._give_core, 0, True), calls=1)

    def _give_core(self, count: int, ended: bool = False) -> None:
        if not self.gone:
            self._copying -= count
            self._given += count
            self.network.core.write(self.number, count, ended)
            self._ask_room()

    def _ask_room(self) -> None:
        """Have news of what acknowledges 64 KiB or all, as the processor takes it."""
        core = self.network.core
        low = max(core.unacked(self.number) - SEGMENT, 0)
        if self._waiting:
            low = max(low, self.send_buffer * 2 // 3)
        core.ask_room(self.number, low)

    def _take_room(self) -> None:
        if self._waiting:
            self._fill(woken=True)
            if self._closing and not self._waiting:
                self._end_soon(None)
        if self._write_paused and self._waits <= self._low:
            self._write_paused = False
            self._context.run(self._protocol.resume_writing)
        self._leave_if_done()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._asked_eof = True
        if not self._wrote_eof and not self.gone:
            self._wrote_eof = True
            self._fill()

    def get_write_buffer_size(self) -> int:
        return self._waits

    # ---- in ----

    def take_news(self, what: int) -> None:
        """Something has happened to this socket (enum vb_sim_news)."""
        if self.gone:
            return
        if what & NEWS_STRAY:
            self._reset_peer()
            return
        if what & NEWS_FAILED:
            self._fail(TimeoutError(errno.ETIMEDOUT, "the peer has not answered for too long"))
            return
        if self._kernel is not None:
            self._interrupt(self._kernel, what)
            return
        if what & NEWS_DATA and self._end == 1:
            self._handshake.take_ack()
        if what & NEWS_DATA and not self.gone:
            self._deliver()
        if what & NEWS_ROOM and not self.gone:
            self._take_room()

    def _interrupt(self, kernel: Kernel, what: int) -> None:
        """Let the processor handle segments and acknowledgements that have arrived."""
        core = self.network.core
        if what & NEWS_DATA:
            arrived, end = core.arrived(self.number)
            before, self._seen = self._seen, arrived
            frames = max(1, -(-(arrived - before) // core.segment))
            self._frames += frames
            acks = parts(self._frames - frames, self._frames, 2)  # of every second one
            pages = parts(before, arrived, PAGE)
            then = partial(self._take_data, arrived, end)
            kernel.receive(Arrived(then, self, frames, arrived - before, pages, acks))
        if what & NEWS_ROOM:
            before, self._acked = self._acked, self._given - core.unacked(self.number)
            acks = max(1, -(-(self._acked - before) // SEGMENT))
            kernel.receive(Arrived(self._take_acks, frames=0, acks=acks))
            self._ask_room()

    def _take_data(self, arrived: int, end: bool) -> None:
        """The processor has handled the peer's stream so far."""
        self._ready, self._ready_end = max(self._ready, arrived), self._ready_end or end
        if self._end == 1 and not self.gone:
            self._handshake.take_ack()
        if not self.gone:
            self._deliver()

    def _take_acks(self) -> None:
        if not self.gone:
            self._take_room()

    def _deliver(self) -> None:
        """Give the program what has arrived, unless it has paused."""
        if self._kernel is not None:
            self._read_by(self._kernel)
            return
        while not (self.gone or self._paused or self._got_eof or self._protocol is None):
            arrived, end = self.network.core.arrived(self.number)
            count = min(arrived - self._read, READ_MOST)
            if count:
                data = self.peer._take(count)
                self._read += count
                if not self._closing:
                    self._context.run(self._give, self.network.loop, data)
            elif end:
                self._take_eof()
            else:
                return

    def _read_by(self, kernel: Kernel) -> None:
        """Let the processor wake the program, and copy what it reads."""
        if self.gone or self._paused or self._got_eof or self._reads or self._protocol is None:
            return
        end = min(self._ready, self._read + READ_MOST)
        if end > self._read or self._ready_end:
            self._reads = True
            kernel.read(self._read, end, partial(self._read_until, end))

    def _read_until(self, end: int) -> None:
        self._reads = False
        if self.gone or self._paused or self._got_eof:
            return
        if end == self._read:
            self._take_eof()
            return
        data = self.peer._take(end - self._read)
        self._read = end
        self.network.core.read(self.number, end, False)
        if not self._closing:
            self._context.run(self._give, self.network.loop, data)
        self._deliver()

    def _take(self, count: int) -> bytes:
        """Remove the first bytes that were sent."""
        parts, left = [], count
        while left:
            first = self._sent.popleft()
            if len(first) > left:
                self._sent.appendleft(first[left:])
                first = first[:left]
            parts.append(first)
            left -= len(first)
        return b"".join(parts)

    def _take_eof(self) -> None:
        self._got_eof = True
        protocol, loop = self._protocol, self.network.loop
        keep = self._closing or self._context.run(
            self._call, loop, "eof_received", protocol.eof_received
        )
        if not keep:
            self.close()
        self._leave_if_done()

    def pause_reading(self) -> None:
        if not self._paused and not self.gone and not self._closing:
            self._paused = True
            self.network.core.read(self.number, self._read, False)

    def resume_reading(self) -> None:
        if self._paused and not self.gone and not self._closing:
            self._paused = False
            self.network.loop.call_soon(self._read_on, context=contextvars.Context())

    def _read_on(self) -> None:
        self._deliver()
        if not self.gone and not self._closing:
            reading = not self._paused and self._kernel is None
            self.network.core.read(self.number, self._read, reading)

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    # ---- its end ----

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is written, then the end; the program reads no more."""
        if self._closing:
            return
        self._closing = True
        if self.gone:  # both streams have ended, or a RST has come
            self._end_soon(None)
            return
        core = self.network.core
        if self._has_unread() or self.options.has_no_linger:
            self._reset_peer()
            return
        self._paused = False
        core.read(self.number, self._read, True)
        core.set_closed(self.number)
        if not self._wrote_eof:
            self._wrote_eof = True
            self._fill()
        if not self._waiting:  # else when all of it is in the send buffer
            self._end_soon(None)

    def _has_unread(self) -> bool:
        """Whether data has come that the program does not have: a RST (RFC 2525, 2.17)."""
        return self.network.core.arrived(self.number)[0] > self._read

    def abort(self) -> None:
        """Forget what is not in the send buffer, and close, as Linux does: a RST follows if data
        was not read, or with SO_LINGER of 0 s."""
        self._force_close(None)

    def _force_close(self, error: BaseException | None) -> None:
        dropped = bool(self._waiting)
        self._waiting.clear()
        self._waits = 0
        self._end_soon(error)
        if dropped and self._wrote_eof and not self.gone:
            self._fill()
        if self._closing and not self.gone and self.options.has_no_linger:
            self._reset_peer()
        self.close()

    def reset(self) -> None:
        """Forget the connection, and send a RST."""
        self._closing = True
        if self.gone:
            self._end_soon(None)
        else:
            self._reset_peer()

    def _reset_peer(self) -> None:
        """Send a RST, and forget the connection; the peer learns of it when the RST arrives."""
        peer = self.peer
        self._leave(None)
        calls = int(self._closing)  # else the kernel refuses data
        self._handshake.send(self._end, RST, peer.take_reset, calls=calls)

    def take_reset(self) -> None:
        """A RST has come. After the peer's end it is the next write's error, as in Linux."""
        if self._got_eof and not self._closing and not self._wrote_eof:
            broken = BrokenPipeError(errno.EPIPE, "Broken pipe")
            if self._waiting:
                self._fail(broken)
            else:
                self._broken = broken
                self._leave(None, silent=True)
            return
        self._fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _fail(self, error: Exception) -> None:
        self._closing = True
        self._leave(error)

    def _leave_if_done(self) -> None:
        """The connection is over when both streams have ended and are acknowledged."""
        core = self.network.core
        if not self.gone and core.is_done(self.number) and core.is_done(self.peer.number):
            for one in (self, self.peer):
                if not one.gone and (one._got_eof or one._closing):
                    one._leave(None, silent=not one._closing)

    def _leave(self, error: Exception | None, *, silent: bool = False) -> None:
        """This end is no more. When both ends are, the core frees the connection."""
        if not self.gone:
            self.gone = True
            self.network.sockets.pop(self.number, None)
            self.network.core.set_closed(self.number)
            if self.port_key is not None:
                self.network.used_ports.discard(self.port_key)
            if self.peer.gone:
                self.network.core.close(self.number)
        if not silent:
            self._end_soon(error)

    def _end_soon(self, error: BaseException | None) -> None:
        if not self._ended and self._protocol is not None:
            self._ended = True
            self.network.loop.call_soon(
                self._protocol.connection_lost, error, context=self._context
            )

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def counts(self) -> tuple[int, int, float]:
        """Return retransmissions, timeouts, and the congestion window in segments."""
        resent, timeouts, window = self.network.core.counts(self.number)
        return resent, timeouts, window
