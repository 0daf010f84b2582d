# SPDX-License-Identifier: Apache-2.0
"""Hosts with a connection manager in virtual time, and the network between them.

A network may lose, repeat, delay and reorder datagrams; with a seed it does so the same way each
time. Hosts answer requests to the system by themselves: an address is found if a host has it.
"""

from __future__ import annotations

import errno
import heapq
import ipaddress
import random
from dataclasses import dataclass, field
from typing import Any

from verbena.manage.cm import (
    AddressAnswer,
    CmAddress,
    CmDevice,
    CmPort,
    CmSettings,
    JoinGroup,
    LocalInterface,
    MadArrival,
    QueryPath,
    RdmaCm,
    RdmaEvent,
    ResolveAddress,
)
from verbena.manage.codes import gid_of_address
from verbena.manage.sa_records import PathRecord


class FakeHost:
    """A system with some IP addresses, all of one port; the network is one link."""

    def __init__(self, *texts: str) -> None:
        self.addresses = {ipaddress.ip_address(text).packed for text in texts}
        self.without_device: set[bytes] = set()
        self.unreachable: set[bytes] = set()
        self.routeless: dict[bytes, int] = {}  # an errno by destination
        self.privileged = False

    def interface_of(self, address: CmAddress) -> LocalInterface | None:
        if address.host in self.without_device:
            return LocalInterface(0, bytes(16))
        if address.host not in self.addresses:
            return None
        return LocalInterface(1, address.gid, index=3)

    def reaches(self, local: CmAddress, peer: CmAddress, port: int) -> bool:
        return local.host in self.addresses and peer.host not in self.unreachable

    def may_bind(self, port: int) -> bool:
        return self.privileged

    def route_error(self, source: CmAddress, destination: CmAddress) -> int:
        return self.routeless.get(destination.host, 0)


@dataclass
class Chances:
    """What the network does to a datagram. Delays are in seconds."""

    lost: float = 0.0
    repeated: float = 0.0
    least_delay: float = 0.0001
    most_delay: float = 0.0001


@dataclass
class Node:
    """A host with its rdma_cm and one channel."""

    text: str
    host: FakeHost
    rdma: RdmaCm
    channel: int = 0
    events: list[tuple[float, RdmaEvent]] = field(default_factory=list)

    @property
    def address(self) -> CmAddress:
        return CmAddress.ip(self.text)


class World:
    """Hosts on one link. ``run`` advances the time; events are collected in ``Node.events``."""

    def __init__(
        self,
        texts: tuple[str, ...] = ("192.0.2.1", "192.0.2.2"),
        seed: int = 1,
        chances: Chances | None = None,
        settings: CmSettings | None = None,
        **more: Any,
    ) -> None:
        self.random = random.Random(seed)
        self.chances = chances or Chances()
        self.now = 0.0
        self.under_way: list[tuple[float, int, Node, bytes, MadArrival]] = []
        self.carried: list[tuple[float, bytes]] = []
        self.count = 0
        self.nodes: list[Node] = []
        for number, text in enumerate(texts):
            host = FakeHost(text)
            device = CmDevice(0x0200000000000001 + number, (CmPort((gid_of_address(text),)),))
            rng = random.Random(seed * 1000 + number)
            rdma = RdmaCm(device, host, rng.getrandbits, settings, **more)
            self.nodes.append(Node(text, host, rdma, rdma.open_channel()))

    def node_of(self, gid: bytes) -> Node | None:
        return next((n for n in self.nodes if gid_of_address(n.text) == gid), None)

    def pump(self) -> None:
        """Carry datagrams off, answer requests, and collect events, until nothing happens."""
        busy = True
        while busy:
            busy = False
            for node in self.nodes:
                for datagram in node.rdma.take_datagrams():
                    busy = True
                    self.carried.append((self.now, datagram.mad))
                    to = self.node_of(datagram.to.dgid)
                    if to is None:
                        continue
                    source = datagram.to
                    arrival = MadArrival(1, True, source.sgid, source.dgid)
                    for _ in range(1 + (self.random.random() < self.chances.repeated)):
                        if self.random.random() >= self.chances.lost:
                            self.carry(to, datagram.mad, arrival)
                for request in node.rdma.take_requests():
                    busy = True
                    self.answer(node, request)
                while (event := node.rdma.read_event(node.channel)) is not None:
                    busy = True
                    node.events.append((self.now, event))
                    self.heard(node, event)

    def carry(self, to: Node, mad: bytes, arrival: MadArrival) -> None:
        delay = self.random.uniform(self.chances.least_delay, self.chances.most_delay)
        self.count += 1
        heapq.heappush(self.under_way, (self.now + delay, self.count, to, mad, arrival))

    def answer(self, node: Node, request: Any) -> None:
        if isinstance(request, ResolveAddress):
            to = self.node_of(request.destination.gid)
            if to is None:
                node.rdma.address_resolved(request.id, errno.ETIMEDOUT)
                return
            local = LocalInterface(1, gid_of_address(node.text))
            source = CmAddress.ip(node.text)
            node.rdma.address_resolved(
                request.id, AddressAnswer(source, local, request.destination.gid)
            )
        elif isinstance(request, QueryPath):
            node.rdma.path_resolved(request.id, PathRecord())
        elif isinstance(request, JoinGroup):
            node.rdma.group_joined(request.group)

    def heard(self, node: Node, event: RdmaEvent) -> None:
        """For tests whose programs react to events."""

    def next_time(self) -> float | None:
        times = [each for each in (node.rdma.next_deadline() for node in self.nodes) if each]
        if self.under_way:
            times.append(self.under_way[0][0])
        return min(times, default=None)

    def run(self, seconds: float = 0.01) -> None:
        """Advance the time by so many seconds."""
        end = self.now + seconds
        self.pump()
        while (when := self.next_time()) is not None and when <= end:
            self.now = max(self.now, when)
            while self.under_way and self.under_way[0][0] <= self.now:
                _, _, to, mad, arrival = heapq.heappop(self.under_way)
                to.rdma.receive(mad, arrival, self.now)
            for node in self.nodes:
                node.rdma.tick(self.now)
            self.pump()
        self.now = end
        for node in self.nodes:
            node.rdma.tick(self.now)
        self.pump()

    def take(self, node: Node) -> list[RdmaEvent]:
        """Return the events that a node has read since the last call."""
        taken = [event for _, event in node.events]
        node.events.clear()
        return taken
