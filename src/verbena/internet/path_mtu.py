# SPDX-License-Identifier: Apache-2.0
"""What a node knows of the MTU of paths (RFC 1191).

ICMP errors of type 3 code 4 lower the MTU of a destination. After ten minutes it is forgotten, so
that a path that has become better is used. Routers older than RFC 1191 do not say the next link's
MTU; then the next plateau of that document's table is tried.
"""

from __future__ import annotations

from ipaddress import IPv4Address

from verbena.host.clock import Agenda
from verbena.internet.icmp import Message, quoted_length
from verbena.internet.ipv4 import MAX_DATAGRAM, MIN_MTU
from verbena.internet.timer import SECOND

# RFC 1191, section 7.1, "Common MTUs in the Internet": the plateaus of its search.
PLATEAUS = (65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68)
LIFETIME = 600 * SECOND


def plateau_below(length: int) -> int:
    """The next plateau for a datagram of so many bytes that did not pass."""
    return next((one for one in PLATEAUS if one < length), MIN_MTU)


def told_mtu(error: Message) -> int:
    """The MTU that an error of type 3 code 4 names, or from whose silence the plateaus follow."""
    return max(MIN_MTU, error.sequence or plateau_below(quoted_length(error)))


class PathMtuCache:
    """MTUs by destination; ``known`` is 65,535 for one of which nothing was heard."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._entries: dict[IPv4Address, tuple[int, int]] = {}

    def known(self, destination: IPv4Address) -> int:
        """Bytes."""
        mtu, until = self._entries.get(destination, (MAX_DATAGRAM, 0))
        if until <= self._agenda.now:
            self._entries.pop(destination, None)
            return MAX_DATAGRAM
        return mtu

    def learn(self, error: Message, destination: IPv4Address) -> None:
        """An error never raises the MTU, and never lowers it below what every link carries."""
        self.set(destination, min(told_mtu(error), self.known(destination)))

    def set(self, destination: IPv4Address, mtu: int) -> None:
        """Note what a search by probes has found."""
        self._entries[destination] = (mtu, self._agenda.now + LIFETIME)
