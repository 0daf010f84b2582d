# SPDX-License-Identifier: Apache-2.0
"""ARP (RFC 826; cache rules of RFC 1122, section 2.3.2): which MAC address a neighbour has.

An Ethernet interface has one resolver. For each address it keeps one datagram, the newest, while it
asks, with all its fragments that have come; if nobody answers, it is handed back as undeliverable.

    state        event             next         action
    (none)       a datagram        INCOMPLETE   keep it; ask
    INCOMPLETE   a datagram        INCOMPLETE   keep it instead of the one before
    INCOMPLETE   timer, tries left INCOMPLETE   ask again
    INCOMPLETE   timer, last try   (none)       the datagram is undeliverable
    INCOMPLETE   an answer         REACHABLE    send what was kept
    REACHABLE    a datagram        REACHABLE    send it
    REACHABLE    news of its MAC   REACHABLE    the entry is as new
    REACHABLE    timer             (none)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address

from verbena.host.clock import Agenda
from verbena.internet.errors import PacketError
from verbena.internet.ipv4 import Datagram
from verbena.internet.timer import SECOND, Timer

PACKET = struct.Struct("!HHBBH6s4s6s4s")
ETHERNET, IPV4 = 1, 0x0800
REQUEST, REPLY = 1, 2
ENTRY_LIFETIME = 60 * SECOND
RETRY = SECOND
TRIES = 3


@dataclass(frozen=True, slots=True)
class ArpPacket:
    operation: int
    sender_mac: bytes
    sender: IPv4Address
    target_mac: bytes
    target: IPv4Address

    def encode(self) -> bytes:
        return PACKET.pack(
            ETHERNET,
            IPV4,
            6,
            4,
            self.operation,
            self.sender_mac,
            self.sender.packed,
            self.target_mac,
            self.target.packed,
        )

    @classmethod
    def decode(cls, data: bytes) -> ArpPacket:
        """Raises PacketError."""
        if len(data) < PACKET.size:
            raise PacketError(f"{len(data)} bytes are too few for an ARP packet")
        hardware, protocol, size, length, operation, smac, sender, tmac, target = (
            PACKET.unpack_from(data)
        )
        if (hardware, protocol, size, length) != (ETHERNET, IPV4, 6, 4):
            raise PacketError("an ARP packet is not about Ethernet and IPv4")
        return cls(operation, smac, IPv4Address(sender), tmac, IPv4Address(target))


class ArpState(Enum):
    INCOMPLETE = "incomplete"
    REACHABLE = "reachable"


@dataclass(slots=True)
class ArpEntry:
    state: ArpState
    timer: Timer
    mac: bytes = b""
    kept: dict[int, Datagram] = field(default_factory=dict)  # by offset: one, or its fragments
    tries: int = 0


class ArpResolver:
    """The cache of one interface.

    ``send_packet(packet, mac)`` sends ARP itself, to all if ``mac`` is None. ``deliver(datagram,
    mac)`` sends a datagram, and ``give_up(datagram)`` gets one whose next hop does not answer.
    """

    def __init__(
        self,
        agenda: Agenda,
        mac: bytes,
        address: IPv4Address,
        send_packet: Callable[[ArpPacket, bytes | None], None],
        deliver: Callable[[Datagram, bytes], None],
        give_up: Callable[[Datagram], None],
        lifetime: int = ENTRY_LIFETIME,
    ) -> None:
        self._agenda = agenda
        self._mac = mac
        self._address = address
        self._send_packet = send_packet
        self._deliver = deliver
        self._give_up = give_up
        self._lifetime = lifetime
        self.entries: dict[IPv4Address, ArpEntry] = {}
        self.requests = 0
        self.replaced = 0

    def send(self, datagram: Datagram, next_hop: IPv4Address) -> None:
        """Send a datagram now, or when the next hop has answered."""
        entry = self.entries.get(next_hop)
        if entry is None:
            entry = self._begin(next_hop)
        elif entry.state is ArpState.REACHABLE:
            self._deliver(datagram, entry.mac)
            return
        if not all(_are_fragments_of_one(kept, datagram) for kept in entry.kept.values()):
            self.replaced += 1
            entry.kept.clear()
        entry.kept[datagram.offset] = datagram

    def receive(self, packet: ArpPacket) -> None:
        """RFC 826, "Packet Reception": learn from what concerns us, answer what asks for us."""
        if packet.sender_mac[0] & 1:  # RFC 1812, section 3.3.2: of a group
            return
        for_us = packet.target == self._address
        if packet.sender in self.entries or (for_us and int(packet.sender)):
            self._learn(packet.sender, packet.sender_mac)
        if for_us and packet.operation == REQUEST:
            answer = ArpPacket(REPLY, self._mac, self._address, packet.sender_mac, packet.sender)
            self._send_packet(answer, packet.sender_mac)

    def clear(self) -> None:
        """Forget all, as when the link goes down; what was kept is lost."""
        for entry in self.entries.values():
            entry.timer.stop()
        self.entries.clear()

    def _begin(self, address: IPv4Address) -> ArpEntry:
        entry = ArpEntry(ArpState.INCOMPLETE, Timer(self._agenda, lambda: self._expire(address)))
        self.entries[address] = entry
        self._ask(address, entry)
        return entry

    def _ask(self, address: IPv4Address, entry: ArpEntry) -> None:
        entry.tries += 1
        self.requests += 1
        entry.timer.start(RETRY)
        self._send_packet(ArpPacket(REQUEST, self._mac, self._address, bytes(6), address), None)

    def _learn(self, address: IPv4Address, mac: bytes) -> None:
        entry = self.entries.get(address)
        if entry is None:
            entry = ArpEntry(ArpState.REACHABLE, Timer(self._agenda, lambda: self._expire(address)))
            self.entries[address] = entry
        entry.state, entry.mac = ArpState.REACHABLE, mac
        entry.timer.start(self._lifetime)
        kept, entry.kept = entry.kept, {}
        for datagram in kept.values():
            self._deliver(datagram, mac)

    def _expire(self, address: IPv4Address) -> None:
        entry = self.entries[address]
        if entry.state is ArpState.INCOMPLETE and entry.tries < TRIES:
            self._ask(address, entry)
            return
        del self.entries[address]
        if entry.kept:
            # An ICMP error quotes the first fragment.
            self._give_up(entry.kept[min(entry.kept)])


def _are_fragments_of_one(kept: Datagram, new: Datagram) -> bool:
    return kept.is_fragment and new.is_fragment and kept.fragment_key == new.fragment_key
