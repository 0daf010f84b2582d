# SPDX-License-Identifier: Apache-2.0
"""A session of BGP-4 with one neighbour (RFC 4271, section 8): its state machine and timers.

The speaker makes one for each neighbour and gets its updates. It differs from the RFC in one point:
the side with the lower address opens the TCP connection and the other one waits, so that two
connections never collide (section 6.8).

    IDLE, START → CONNECT or ACTIVE → (TCP connects) OPEN_SENT → OPEN_CONFIRM → ESTABLISHED
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address

from verbena._arguments import checked_class
from verbena.internet.bgp_messages import (
    BgpError,
    BgpFailure,
    BgpKeepalive,
    BgpMessage,
    BgpNotification,
    BgpOpen,
    BgpUpdate,
    MessageReader,
    encode_message,
)
from verbena.internet.errors import InternetError, InternetTypeError
from verbena.internet.node import Node
from verbena.internet.tcp_connection import TcpConnection
from verbena.internet.timer import SECOND, Timer

BGP_PORT = 179


@checked_class(InternetTypeError)
@dataclass(frozen=True)
class BgpSettings:
    """Times in seconds. ``hold_s`` and ``connect_retry_s`` are those of RFC 4271, section 10;
    between two advertisements to a neighbour pass ``advertisement_s`` (MRAI), or to one of the own
    system ``interior_advertisement_s``, each times a random number from 0.75 to 1."""

    hold_s: int = 90
    connect_retry_s: int = 120
    advertisement_s: float = 30.0
    interior_advertisement_s: float = 5.0

    def __post_init__(self) -> None:
        """Raises InternetError."""
        if self.hold_s not in (0, *range(3, 65536)):
            raise InternetError(f"a hold time of {self.hold_s} s: it is 0, for none, or 3 to 65535")
        if self.connect_retry_s < 1 or min(self.advertisement_s, self.interior_advertisement_s) < 0:
            raise InternetError("a retry needs a second or more, and no interval is negative")


class BgpState(StrEnum):
    IDLE = "Idle"
    CONNECT = "Connect"
    ACTIVE = "Active"
    OPEN_SENT = "OpenSent"
    OPEN_CONFIRM = "OpenConfirm"
    ESTABLISHED = "Established"


class BgpEvent(StrEnum):
    CALL = "start, and this side connects"
    LISTEN = "start, and the other side connects"
    CONNECTED = "TCP is established"
    OPEN = "an OPEN that is accepted"
    KEEPALIVE = "a KEEPALIVE"
    UPDATE = "an UPDATE"
    DOWN = "the connection, the link or the hold time is over, or an error"


S, E = BgpState, BgpEvent
BGP_TRANSITIONS: dict[tuple[BgpState, BgpEvent], BgpState] = {
    (S.IDLE, E.CALL): S.CONNECT,
    (S.IDLE, E.LISTEN): S.ACTIVE,
    (S.CONNECT, E.CONNECTED): S.OPEN_SENT,
    (S.ACTIVE, E.CONNECTED): S.OPEN_SENT,
    (S.OPEN_SENT, E.OPEN): S.OPEN_CONFIRM,
    (S.OPEN_CONFIRM, E.KEEPALIVE): S.ESTABLISHED,
    (S.ESTABLISHED, E.KEEPALIVE): S.ESTABLISHED,
    (S.ESTABLISHED, E.UPDATE): S.ESTABLISHED,
} | {(state, E.DOWN): S.IDLE for state in S}


@dataclass(frozen=True, slots=True)
class BgpPeering:
    """Who talks with whom: own and other system, router identifier, and addresses."""

    system: int
    router: IPv4Address
    own: IPv4Address
    other_system: int
    other: IPv4Address

    @property
    def is_interior(self) -> bool:
        return self.system == self.other_system


class BgpSession:
    """``on_up()`` and ``on_down(reason)`` say that it is established and that it is over;
    ``on_update`` gets each update. ``other_router`` is the neighbour's identifier."""

    def __init__(
        self,
        node: Node,
        peering: BgpPeering,
        settings: BgpSettings,
        on_up: Callable[[], None],
        on_down: Callable[[str], None],
        on_update: Callable[[BgpUpdate], None],
    ) -> None:
        self._node = node
        self._peering = peering
        self._settings = settings
        self._on_up = on_up
        self._on_down = on_down
        self._on_update = on_update
        self._connection: TcpConnection | None = None
        self._hold_time = settings.hold_s * SECOND
        self._retry = Timer(node.agenda, self.start)
        self._hold = Timer(node.agenda, self._hold_is_over)
        self._keepalive = Timer(node.agenda, self._keep_alive)
        self.state = S.IDLE
        self.other_router = IPv4Address(0)
        self.sent = 0

    def start(self) -> None:
        """Begin, or begin again, if the session is idle."""
        if self.state is not S.IDLE:
            return
        self._retry.stop()
        if self._peering.own > self._peering.other:
            self._step(E.LISTEN)
            return
        self._step(E.CALL)
        ttl = 64 if self._peering.is_interior else 1
        here, there = self._peering.own, self._peering.other
        self._adopt(self._node.tcp.connect(there, BGP_PORT, here, ttl=ttl))

    def accept(self, connection: TcpConnection) -> bool:
        """Take a connection of the neighbour; False if this session waits for none.

        A neighbour that connects again has lost the connection before.
        """
        if self._peering.own < self._peering.other:
            return False
        if self._connection is not None:
            self.stop("the neighbour connects again", tell=False)
        self.start()
        self._adopt(connection)
        return True

    def stop(self, reason: str, *, tell: bool = True, stay: bool = False) -> None:
        """End the session, and try again later unless it shall ``stay`` down."""
        if tell and self.state in (S.OPEN_SENT, S.OPEN_CONFIRM, S.ESTABLISHED):
            self._send(BgpNotification(BgpFailure.CEASE))
        self._down(reason)
        if stay:
            self._retry.stop()

    def send(self, update: BgpUpdate) -> None:
        """In ESTABLISHED only."""
        self._send(update)

    def _adopt(self, connection: TcpConnection) -> None:
        reader = MessageReader()
        self._connection = connection
        connection.on_open = self._opened
        connection.on_data = lambda data: self._receive(connection, reader, data)
        connection.on_end = lambda: self._lost(connection, "the neighbour has closed")
        connection.on_close = lambda error: self._lost(connection, str(error or "closed"))

    def _opened(self) -> None:
        assert self._connection is not None
        assert self._connection.sender is not None
        self._connection.sender.no_delay = True
        self._step(E.CONNECTED)
        hold = self._settings.hold_s
        self._send(BgpOpen(self._peering.system, hold, self._peering.router))
        # Section 8.2.2: a large value until the OPEN has come.
        self._hold.start(240 * SECOND)

    def _receive(self, connection: TcpConnection, reader: MessageReader, data: bytes) -> None:
        try:
            for message in reader.feed(data):
                self._take(message)
                if connection is not self._connection:
                    return
        except BgpError as error:
            self._send(BgpNotification(error.code, error.subcode))
            self._down(str(error))

    def _take(self, message: BgpMessage) -> None:
        """Raises BgpError for a message that must not come in this state."""
        match message:
            case BgpNotification():
                self._down(f"NOTIFICATION {message.code}/{message.subcode}")
            case BgpOpen():
                self._check_open(message)
                self._step(E.OPEN)
                self._send(BgpKeepalive())
                self._agree(message.hold_s)
            case BgpKeepalive():
                was = self.state
                self._step(E.KEEPALIVE)
                self._restart_hold()
                if was is not S.ESTABLISHED:
                    self._on_up()
            case BgpUpdate():
                self._step(E.UPDATE)
                self._restart_hold()
                self._on_update(message)

    def _check_open(self, message: BgpOpen) -> None:
        expected = self._peering.other_system
        if message.system != expected:
            text = f"{self._peering.other} is of system {message.system}, and not {expected}"
            raise BgpError(text, BgpFailure.OPEN, 2)
        if message.router == self._peering.router:
            raise BgpError(f"{message.router} is the own identifier", BgpFailure.OPEN, 3)
        self.other_router = message.router

    def _agree(self, hold_s: int) -> None:
        """Section 4.2: the smaller of the two hold times; 0 is none."""
        self._hold_time = min(hold_s, self._settings.hold_s) * SECOND
        self._restart_hold()
        if self._hold_time:
            self._keepalive.start(self._hold_time // 3)

    def _restart_hold(self) -> None:
        if self._hold_time:
            self._hold.start(self._hold_time)
        else:
            self._hold.stop()

    def _keep_alive(self) -> None:
        self._send(BgpKeepalive())
        self._keepalive.start(self._hold_time // 3)

    def _hold_is_over(self) -> None:
        self._send(BgpNotification(BgpFailure.HOLD_TIMER))
        self._down("nothing came for the hold time")

    def _send(self, message: BgpMessage) -> None:
        if self._connection is not None:
            self.sent += 1
            self._connection.write(encode_message(message))

    def _lost(self, connection: TcpConnection, reason: str) -> None:
        if connection is self._connection:
            self._down(reason)

    def _down(self, reason: str) -> None:
        connection, self._connection = self._connection, None
        was = self.state
        self._step(E.DOWN)
        self._hold.stop()
        self._keepalive.stop()
        if connection is not None:
            connection.close()
        self._retry.start(self._settings.connect_retry_s * SECOND)
        if was is S.ESTABLISHED:
            self._on_down(reason)

    def _step(self, event: BgpEvent) -> None:
        following = BGP_TRANSITIONS.get((self.state, event))
        if following is None:
            text = f"in {self.state.value}: {event.value}"
            raise BgpError(text, BgpFailure.STATE_MACHINE)
        self.state = following
