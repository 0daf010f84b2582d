# SPDX-License-Identifier: Apache-2.0
"""ping, traceroute and the search for a path's MTU, from a node. ``Internet`` offers them by name.

Each runs the agenda until its answer has come or its time is over, so they are for programs that
drive an internet from outside, and not for handlers of events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from verbena.host.clock import Agenda
from verbena.internet.errors import InternetError, NoRouteError
from verbena.internet.icmp import Kind, Message, Unreachable
from verbena.internet.ipv4 import MIN_MTU, Datagram, Protocol
from verbena.internet.node import Node
from verbena.internet.path_mtu import told_mtu
from verbena.internet.timer import MICROSECOND, MILLISECOND, SECOND

PING_TIMEOUT = SECOND
TRACE_TIMEOUT = 5 * SECOND
# The port of traceroute's first probe; each next one has the next port.
TRACE_PORT = 33434
HEADERS = 28  # of IPv4 and ICMP
MOST_ECHOES = 65535  # of a ping, whose sequence numbers begin with 1


def run_until(agenda: Agenda, done: Callable[[], bool], deadline: int) -> bool:
    """Run events until ``done`` says so, or to the deadline in ps. Returns ``done()``."""
    while not done() and agenda.next_at <= deadline:
        agenda.run_due(agenda.next_at)
    if not done():
        agenda.run_due(deadline)
    return done()


@dataclass(frozen=True)
class PingReply:
    """What came back for an echo: ``text`` says what if it was no reply; then ``ok`` is False."""

    sequence: int
    sender: IPv4Address | None
    rtt_ps: int
    ttl: int
    text: str
    ok: bool

    def __str__(self) -> str:
        if self.sender is None:
            return f"seq {self.sequence}: {self.text}"
        if not self.ok:
            return f"seq {self.sequence}: {self.text}, says {self.sender}"
        milliseconds = self.rtt_ps / MILLISECOND
        return f"seq {self.sequence}: {self.sender}, {milliseconds:.3f} ms, ttl {self.ttl}"


class Echo:
    """Sends one echo and keeps the first message about it, which came ``rtt`` ps later."""

    def __init__(self, node: Node, destination: IPv4Address, identifier: int, sequence: int):
        self._node = node
        self._destination = destination
        self._key = (identifier, sequence)
        self.answer: Message | None = None
        self.about: Datagram | None = None
        self.sent_at = node.agenda.now
        self.rtt = 0

    def run(self, size: int, ttl: int = 64, dont_fragment: bool = False, wait: int = 0) -> bool:
        """Send ``size`` bytes of ICMP payload, and wait; False if nothing came in time."""
        end = self._node.listen_icmp(self._listen)
        try:
            body = bytes(at & 0xFF for at in range(size))
            self._node.send(
                Protocol.ICMP,
                None,
                self._destination,
                Message(Kind.ECHO, 0, *self._key, body).encode(),
                ttl=ttl,
                dont_fragment=dont_fragment,
                ignore_path_mtu=dont_fragment,
            )
            agenda = self._node.agenda
            return run_until(agenda, lambda: self.answer is not None, self.sent_at + wait)
        finally:
            end()

    def _listen(self, message: Message, datagram: Datagram) -> None:
        if self.answer is not None:
            return
        if message.kind == Kind.ECHO_REPLY:
            key = (message.identifier, message.sequence)
        elif message.is_error:
            quoted = message.quoted()
            if quoted.protocol != Protocol.ICMP or quoted.payload[:1] != bytes([Kind.ECHO]):
                return
            key = (
                int.from_bytes(quoted.payload[4:6], "big"),
                int.from_bytes(quoted.payload[6:8], "big"),
            )
        else:
            return
        if key == self._key:
            self.answer, self.about = message, datagram
            self.rtt = self._node.agenda.now - self.sent_at


def ping(
    node: Node,
    destination: IPv4Address,
    count: int,
    size: int,
    identifier: int,
    dont_fragment: bool = False,
    timeout: int = PING_TIMEOUT,
) -> list[PingReply]:
    """``size`` is in bytes of ICMP payload; an echo each ``timeout`` ps."""
    replies = []
    for sequence in range(1, count + 1):
        echo = Echo(node, destination, identifier, sequence)
        try:
            echo.run(size, dont_fragment=dont_fragment, wait=timeout)
        except NoRouteError as error:
            replies.append(PingReply(sequence, None, 0, 0, str(error), False))
            continue
        replies.append(_ping_reply(echo, sequence))
        if sequence < count:
            node.agenda.run_due(echo.sent_at + timeout)
    return replies


def _ping_reply(echo: Echo, sequence: int) -> PingReply:
    answer, about = echo.answer, echo.about
    if answer is None or about is None:
        return PingReply(sequence, None, 0, 0, "no answer", False)
    ok = answer.kind == Kind.ECHO_REPLY
    return PingReply(sequence, about.source, echo.rtt, about.ttl, "" if ok else answer.text, ok)


@dataclass(frozen=True)
class Hop:
    """Who answered a probe with this TTL; ``sender`` None: nobody. ``name`` is the node's."""

    ttl: int
    sender: IPv4Address | None
    name: str
    rtt_ps: int
    text: str

    def __str__(self) -> str:
        if self.sender is None:
            return f"{self.ttl:2}  *"
        note = "" if self.text in ("time to live exceeded", "port unreachable") else f" {self.text}"
        return (
            f"{self.ttl:2}  {self.name} ({self.sender})  {self.rtt_ps / MICROSECOND:.1f} us{note}"
        )


def traceroute(
    node: Node,
    destination: IPv4Address,
    name_of: Callable[[IPv4Address], str],
    max_ttl: int = 30,
    timeout: int = TRACE_TIMEOUT,
) -> list[Hop]:
    """A UDP datagram for each TTL, as Van Jacobson's program: routers say that it has expired, and
    the destination that the port is unreachable."""
    hops: list[Hop] = []
    socket = node.udp.open(lambda arrival: None)
    listened: dict[int, tuple[Message, Datagram]] = {}
    end = node.listen_icmp(lambda message, datagram: _note(message, datagram, listened))
    try:
        for ttl in range(1, max_ttl + 1):
            port, begin = TRACE_PORT + ttl, node.agenda.now
            socket.send(bytes(32), destination, port, ttl=ttl)
            if not run_until(node.agenda, lambda port=port: port in listened, begin + timeout):  # type: ignore[misc]
                hops.append(Hop(ttl, None, "", 0, "no answer"))
                continue
            message, datagram = listened[port]
            sender = datagram.source
            rtt = node.agenda.now - begin
            hops.append(Hop(ttl, sender, name_of(sender), rtt, message.text))
            if message.kind == Kind.UNREACHABLE:
                break
    finally:
        end()
        socket.close()
    return hops


def _note(
    message: Message, datagram: Datagram, listened: dict[int, tuple[Message, Datagram]]
) -> None:
    if message.is_error:
        quoted = message.quoted()
        if quoted.protocol == Protocol.UDP:
            port = int.from_bytes(quoted.payload[2:4], "big")
            listened.setdefault(port, (message, datagram))


@dataclass(frozen=True)
class PathMtu:
    """``mtu`` bytes pass, and one more does not. ``black_hole``: too large ones vanished without
    an error; ``errors`` counts the ICMP errors of type 3 code 4, and ``probes`` what was sent."""

    mtu: int
    black_hole: bool
    errors: int
    probes: int


def search_path_mtu(
    node: Node,
    destination: IPv4Address,
    identifier: int,
    timeout: int = PING_TIMEOUT,
    tries: int = 2,
) -> PathMtu:
    """Probe with echoes that must not be fragmented; note the result in the node's cache.

    It starts with the interface's MTU. An error says which size to try next (RFC 1191); silence
    halves the interval, as a search in packetization layers does (RFC 4821), so that a path whose
    errors are filtered is measured too. Raises InternetError if not even 68 bytes are answered.
    """
    found = node.table.resolve(destination)
    if found is None:
        raise NoRouteError(f"{node.name} has no route to {destination}")
    good, bad = 0, found[0].mtu + 1
    size, errors, probes, black_hole = bad - 1, 0, 0, False
    while bad - good > 1:
        answer: Message | None = None
        for _ in range(tries):
            probes += 1
            echo = Echo(node, destination, identifier, probes & 0xFFFF)
            echo.run(size - HEADERS, dont_fragment=True, wait=timeout)
            answer = echo.answer
            if answer is not None:
                break
        if answer is None:
            if size == MIN_MTU:
                raise InternetError(f"{destination} answers no echo of {MIN_MTU} bytes: is it up?")
            black_hole, bad = True, size
            size = max(MIN_MTU, (good + bad) // 2) if good else MIN_MTU
        elif answer.kind == Kind.ECHO_REPLY:
            good = size
            size = (good + bad) // 2
        elif (answer.kind, answer.code) == (Kind.UNREACHABLE, Unreachable.FRAGMENTATION_NEEDED):
            errors += 1
            bad = size
            if bad <= MIN_MTU:
                raise InternetError(f"{destination} is told that {MIN_MTU} bytes do not fit")
            told = told_mtu(answer)  # the cache may know less: from before the path's MTU rose
            size = max(MIN_MTU, told if good < told < bad else (good + bad) // 2)
            bad = size + 1 if told == size else bad
        else:
            raise InternetError(f"{destination}: {answer.text}")
    node.path_mtus.set(destination, good)
    return PathMtu(good, black_hole, errors, probes)
