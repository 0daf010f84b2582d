# SPDX-License-Identifier: Apache-2.0
"""A TCP connection (RFC 9293): opening, the receiving half, and closing.

``TcpSockets`` makes one for each connection and gives it what arrives; the owner sets the four
calls, writes and closes. ``tcp_states.py`` has the state machine. Bytes arrive once, in order and
complete, or the connection fails. Not part of it: simultaneous opening, urgent data, window scaling
and selective acknowledgements.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from ipaddress import IPv4Address
from random import Random

from verbena._arguments import checked_class
from verbena.host.clock import Agenda
from verbena.internet.errors import InternetTypeError
from verbena.internet.tcp_reassembly import TcpReassembly
from verbena.internet.tcp_segment import DEFAULT_MSS, TcpFlag, TcpSegment, unwrap
from verbena.internet.tcp_sender import JITTER_SHARE, TcpSender, TcpSettings, after_lost_syn
from verbena.internet.tcp_states import READS, TCP_TRANSITIONS, WRITES, TcpEvent, TcpState
from verbena.internet.timer import MICROSECOND, MILLISECOND, SECOND, Timer

S, E = TcpState, TcpEvent


@checked_class(InternetTypeError, but=("__init__", "accept", "fail", "receive"))
class TcpConnection:
    """``ports`` are the own and the peer's; ``transmit`` sends a segment to the peer.

    ``on_open()`` comes first, then ``on_data(bytes)`` in order, ``on_end()`` when the peer writes
    no more, and ``on_close(error)`` once and last: None is an orderly end or the own ``abort``.
    ``on_progress()`` says that the peer has acknowledged or has room, so that more bytes may have
    left.
    """

    def __init__(
        self,
        agenda: Agenda,
        ports: tuple[int, int],
        first: int,
        settings: TcpSettings,
        transmit: Callable[[TcpSegment], None],
        forget: Callable[[], None],
        random: Random,
    ) -> None:
        self._random = random
        self._agenda = agenda
        self._settings = settings
        self._transmit = transmit
        self._forget = forget
        self._handshake = Timer(agenda, self._again_soon)
        self._jitter = Timer(agenda, self._again)  # after the other one, before a SYN
        self._wait = Timer(agenda, lambda: self._end(None))
        self._delayed = Timer(agenda, self._acknowledge)
        self._tries = 0
        self._began = 0  # when the first SYN, or answer to one, was sent
        self._closed = False  # on_close was called
        self._peer: TcpSegment
        self._written = bytearray()  # before the connection is established
        self._wants_end = self._wants_close = False
        self._gaps = TcpReassembly()
        self._held = bytearray()  # what the program has paused
        self._fin: int | None = None  # the number of the peer's FIN
        self._paused = False
        self._ended = False  # on_end was called
        self.ports = ports
        self.peer: IPv4Address | None = None  # for texts of errors
        self.state = S.CLOSED
        self.first = first
        self.next = 0  # RCV.NXT
        self.sender: TcpSender | None = None
        self.on_open: Callable[[], None] = lambda: None
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[], None] = lambda: None
        self.on_close: Callable[[OSError | None], None] = lambda error: None
        self.on_progress: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        own, port = self.ports
        to = f" of {self.peer}" if self.peer else ""
        return f"<TCP connection from port {own} to port {port}{to}: {self.state.value}>"

    @property
    def peer_text(self) -> str:
        """As "TCP port 80 of 10.0.0.1"."""
        return f"TCP port {self.ports[1]}" + (f" of {self.peer}" if self.peer else "")

    # ---- what the owner calls ----

    def open(self) -> None:
        """Send a SYN, and again until it is answered."""
        self.state = S.SYN_SENT
        self._again()

    def accept(self, syn: TcpSegment) -> None:
        """Take a SYN that a listener has received; ``answer`` follows."""
        self.state = S.SYN_RECEIVED
        self.next = syn.sequence + 1
        self._peer = syn

    def answer(self) -> None:
        """Answer the SYN, unless the owner has ended the connection."""
        if self.state is S.SYN_RECEIVED:
            self._again()

    def write(self, data: bytes) -> None:
        """Send bytes, now or when windows allow it. Raises BrokenPipeError after the end."""
        if self.state not in WRITES or self._wants_end:
            raise BrokenPipeError(errno.EPIPE, "the connection is closed for writing")
        if self.sender is None:
            self._written += data
        else:
            self.sender.write(data)

    def end(self) -> None:
        """Write no more: a FIN follows what was written."""
        if self._wants_end or self.state is S.CLOSED:
            return
        self._wants_end = True
        if self.sender is not None:
            self._step(E.ENDED)
            self.sender.finish()

    def close(self) -> None:
        """Write and read no more. Data that nobody has read is answered with a RST (RFC 2525).

        Before the connection is established, what was written is sent first, and ``on_open`` is
        not called; where nothing was written, the connection is forgotten. RFC 9293, 3.10.4, would
        forget both, with an error for each send that waits: ``write`` has returned already.
        """
        if self._wants_close:
            return
        self._wants_close = True
        if self._held or (self.state is S.SYN_SENT and not self._written):
            self.abort()
            return
        self.end()
        if self.state is S.FIN_WAIT_2:
            self._wait.start(self._settings.time_wait_s * SECOND)

    def abort(self) -> None:
        """Forget the connection; the peer is told by a RST."""
        if self.state in (S.CLOSED, S.TIME_WAIT):
            return
        if self.state is not S.SYN_SENT:
            at = self.first + 1 if self.sender is None else self.sender.next
            self._emit(at, TcpFlag.RST | TcpFlag.ACK)
        self._end(None)

    def pause(self) -> None:
        """Keep what arrives, and let the window shrink."""
        self._paused = True

    def resume(self) -> None:
        if not self._paused:
            return
        self._paused = False
        was_shut = self._window < self._settings.mss
        held, self._held = bytes(self._held), bytearray()
        if held:
            self.on_data(held)
        if was_shut and self.state is not S.CLOSED:
            self._acknowledge()
        self._tell_end()

    def fail(self, error: OSError) -> None:
        """End the connection because of something outside, as an ICMP error about its SYN."""
        self._end(error)

    def leave(self) -> None:
        """End TIME-WAIT early, because the same ports are used again."""
        self._end(None)

    # ---- what arrives ----

    def receive(self, segment: TcpSegment) -> None:
        """RFC 9293, section 3.10.7."""
        if self.state is S.SYN_SENT:
            self._receive_answer(segment)
            return
        at = unwrap(segment.sequence, self.next)
        if not self._is_acceptable(at, segment.length):
            self._receive_outside(at, segment)
            return
        if TcpFlag.RST in segment.flags:
            if at == self.next and self.state is S.TIME_WAIT:
                self._end(None)
            elif at == self.next:
                self._end(ConnectionResetError(errno.ECONNRESET, "the peer has reset it"))
            else:
                self._acknowledge()  # RFC 5961, 3.2
            return
        if TcpFlag.SYN in segment.flags:
            self._acknowledge()  # RFC 5961, 4.2
            return
        if TcpFlag.ACK in segment.flags and self._take_acknowledgement(segment):
            self._take_data(at, segment)

    def _receive_answer(self, segment: TcpSegment) -> None:
        """In SYN-SENT (section 3.10.7.3); the peer may still have an older connection."""
        if TcpFlag.ACK not in segment.flags:
            return
        if unwrap(segment.acknowledgement, self.first) != self.first + 1:
            if TcpFlag.RST not in segment.flags:
                self._emit(segment.acknowledgement, TcpFlag.RST)
            return
        if TcpFlag.RST in segment.flags:
            text = f"nobody listens at {self.peer_text}"
            self._end(ConnectionRefusedError(errno.ECONNREFUSED, text))
        elif TcpFlag.SYN in segment.flags:
            self.next = segment.sequence + 1
            self._peer = segment
            self._establish(segment.window)
            if self.state is not S.CLOSED:
                self._acknowledge()

    def _receive_outside(self, at: int, segment: TcpSegment) -> None:
        """A segment that the window does not take. What it acknowledges counts all the same: while
        the window is shut the peer's acknowledgements come with the number of data beyond it."""
        if TcpFlag.RST in segment.flags:
            return
        if TcpFlag.ACK in segment.flags and TcpFlag.SYN not in segment.flags:
            self._take_acknowledgement(segment)
        if TcpFlag.FIN in segment.flags and self.state is S.TIME_WAIT:
            self._wait.start(self._settings.time_wait_s * SECOND)
        if (segment.length or at < self.next) and self.state is not S.CLOSED:
            self._acknowledge()

    def _is_acceptable(self, at: int, length: int) -> bool:
        window = self._window
        if length == 0:
            return at == self.next or self.next <= at < self.next + window
        return at < self.next + window and at + length > self.next

    def _take_acknowledgement(self, segment: TcpSegment) -> bool:
        if self.state is S.SYN_RECEIVED:
            if unwrap(segment.acknowledgement, self.first) != self.first + 1:
                self._emit(segment.acknowledgement, TcpFlag.RST)
                return False
            self._establish(segment.window)
        sender = self.sender
        if sender is None:
            return False
        number = unwrap(segment.acknowledgement, sender.una)
        at = unwrap(segment.sequence, self.next)
        if not sender.acknowledge(number, segment.window, at, segment.length == 0):
            self._acknowledge()
            return False
        self.on_progress()
        if sender.is_done and (self.state, E.FIN_ACKNOWLEDGED) in TCP_TRANSITIONS:
            self._step(E.FIN_ACKNOWLEDGED)
            if self.state is S.CLOSED:
                self._end(None)
                return False
            if self.state is S.TIME_WAIT or self._wants_close:
                self._wait.start(self._settings.time_wait_s * SECOND)
        return self.state is not S.CLOSED

    def _take_data(self, at: int, segment: TcpSegment) -> None:
        if segment.length == 0:
            return
        if TcpFlag.FIN in segment.flags:
            self._fin = at + len(segment.payload)
        if at + len(segment.payload) > self.next and self.state in READS:
            if self._wants_close:
                self.abort()
                return
            self._gaps.keep(at, segment.payload, self.next, self.next + self._window)
        in_order = at <= self.next
        fresh = self._gaps.take(self.next)
        self.next += len(fresh)
        if self._paused:  # before the acknowledgement, which has the window
            self._held += fresh
        if self._fin == self.next:
            self._take_fin()
        elif in_order and fresh and not self._gaps and not self._delayed.running:
            self._delayed.start(self._settings.ack_delay_ms * MILLISECOND)
        else:
            self._acknowledge()
        self._hand(fresh)

    def _take_fin(self) -> None:
        if (self.state, E.FIN) not in TCP_TRANSITIONS:
            self._acknowledge()
            return
        self.next += 1
        self._step(E.FIN)
        self._acknowledge()
        if self.state is S.TIME_WAIT:
            self._wait.start(self._settings.time_wait_s * SECOND)

    def _hand(self, fresh: bytes) -> None:
        if fresh and not self._paused:
            self.on_data(fresh)
        self._tell_end()

    def _tell_end(self) -> None:
        over = self._fin is not None and self.next > self._fin
        if over and not self._paused and not self._ended and self.state is not S.CLOSED:
            self._ended = True
            self.on_end()

    # ---- states, and what is sent ----

    def _establish(self, window: int) -> None:
        self._handshake.stop()
        self._jitter.stop()
        self._step(E.ACKNOWLEDGED)
        mss = min(self._settings.mss, self._peer.mss or DEFAULT_MSS)
        settings = self._settings if self._tries == 1 else after_lost_syn(self._settings)
        self.sender = TcpSender(
            self._agenda,
            settings,
            self.first + 1,
            mss,
            window,
            self._emit_data,
            self._lost,
            self._random,
        )
        if self._written:  # before what on_open writes, or its end
            self.sender.write(bytes(self._written))
            self._written.clear()
        if not self._wants_close:
            self.on_open()
        if self._wants_end and self.state is S.ESTABLISHED:
            self._step(E.ENDED)
            self.sender.finish()

    def _step(self, event: TcpEvent) -> None:
        self.state = TCP_TRANSITIONS[self.state, event]

    def _again(self) -> None:
        """Send the SYN or the answer to one, and again after 1, 3, 7 … s (RFC 6298, 5.5)."""
        if not self._tries:
            self._began = self._agenda.now
        self._tries += 1
        active = self.state is S.SYN_SENT
        flags = TcpFlag.SYN if active else TcpFlag.SYN | TcpFlag.ACK
        self._emit(self.first, flags, mss=self._settings.mss)
        first = self._settings.first_rto_ms * MILLISECOND
        self._handshake.start(self._began + (first << self._tries) - first - self._agenda.now)

    def _again_soon(self) -> None:
        """Send the SYN again after a random time, or give up.

        Connections that began at once and have lost their SYN together would otherwise meet again,
        and the same number of them would be lost in each round.
        """
        settings = self._settings
        if self._tries > settings.syn_retries:
            self._lost()
            return
        longest = (settings.first_rto_ms * MILLISECOND << (self._tries - 1)) // JITTER_SHARE
        if settings.jitter_us is not None:
            longest = min(longest, round(settings.jitter_us * MICROSECOND))
        self._jitter.start(self._random.randrange(longest) if longest else 0)

    def _emit_data(self, at: int, payload: bytes, is_last: bool) -> None:
        flags = TcpFlag.ACK | (TcpFlag.PSH if payload else TcpFlag(0))
        self._emit(at, flags | (TcpFlag.FIN if is_last else TcpFlag(0)), payload)

    def _acknowledge(self) -> None:
        """With the highest number that was sent: the peer takes a lower one for an old segment."""
        at = self.first + 1 if self.sender is None else self.sender.highest
        self._emit(at, TcpFlag.ACK)

    @property
    def _window(self) -> int:
        return self._settings.window - len(self._held)

    def _emit(self, at: int, flags: TcpFlag, payload: bytes = b"", mss: int | None = None) -> None:
        if TcpFlag.ACK in flags:
            self._delayed.stop()
        acknowledged = self.next if TcpFlag.ACK in flags else 0
        own, peer = self.ports
        self._transmit(TcpSegment(own, peer, at, acknowledged, flags, self._window, payload, mss))

    def _lost(self) -> None:
        self._end(TimeoutError(errno.ETIMEDOUT, f"{self.peer_text} does not answer"))

    def _end(self, error: OSError | None) -> None:
        if self._closed:
            return
        self._closed = True
        if self.state is not S.CLOSED:
            self._step(E.FAILED)
        for timer in (self._handshake, self._jitter, self._wait, self._delayed):
            timer.stop()
        if self.sender is not None:
            self.sender.stop()
        self._forget()
        self.on_close(error)
