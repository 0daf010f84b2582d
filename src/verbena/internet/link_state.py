# SPDX-License-Identifier: Apache-2.0
"""A link-state protocol after OSPF version 2 (RFC 2328), on the interfaces of one router.

Each router describes its links in an LSA, which is flooded to all; everyone then computes the
shortest paths by itself. Hellos find neighbours and notice dead ones. It differs from OSPF: there
is one area, every network is of RFC 2328's type point-to-multipoint (no designated router), and a
new neighbour gets the whole database as updates, without description packets.

    neighbour   event                          next       action
    (none)      hello                          INIT       answer by a hello
    INIT        hello that lists this router   FULL       send the database; new own LSA
    FULL        hello that does not list it    INIT       new own LSA
    any         no hello for 40 s, or no link  (none)     new own LSA
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from verbena._arguments import checked_class
from verbena.internet.errors import InternetError, InternetTypeError, PacketError
from verbena.internet.interface import Interface
from verbena.internet.ipv4 import Datagram, Protocol
from verbena.internet.lsa import (
    INITIAL_SEQUENCE,
    LAST_SEQUENCE,
    MAX_AGE,
    MOST_COST,
    Lsa,
    LsaLink,
    LsaLinkKind,
    OspfPacket,
    contradicts,
    decode_acknowledgement,
    decode_hello,
    decode_packet,
    decode_update,
    encode_acknowledgement,
    encode_hello,
    encode_packet,
    is_newer,
    is_older,
    network_link,
)
from verbena.internet.lsa_flooding import LsaFlooding, Neighbour, NeighbourState
from verbena.internet.node import Node, check_own_interface, check_router
from verbena.internet.shortest_paths import shortest_paths
from verbena.internet.table import Origin, Route
from verbena.internet.timer import MILLISECOND, SECOND, Timer

ALL_SPF_ROUTERS = IPv4Address("224.0.0.5")
# Of two own LSAs where one overtakes what another router says (RFC 2328, appendix B).
MOST_HELLO_S, MOST_DEAD_S = 0xFFFF, 0xFFFFFFFF  # the fields of a hello
MIN_LS_INTERVAL = 5 * SECOND
# A node's counter: what came from a router with its own identifier.
OWN_IDENTIFIER = "own router identifier"


@checked_class(InternetTypeError)
@dataclass(frozen=True)
class LinkStateSettings:
    """Times in seconds, of RFC 2328, appendices B and C. ``spf_delay_ms``: so long after a change
    the paths are computed, so that changes that come together are one computation."""

    hello_s: int = 10
    dead_s: int = 40
    retransmit_s: int = 5
    refresh_s: int = 1800
    spf_delay_ms: int = 50

    def __post_init__(self) -> None:
        """Raises InternetError."""
        if not 1 <= self.hello_s <= MOST_HELLO_S or not self.hello_s < self.dead_s <= MOST_DEAD_S:
            raise InternetError(
                f"hello_s is {self.hello_s} and dead_s is {self.dead_s}: hellos are 1 to "
                f"{MOST_HELLO_S} s apart, and a router is dead after a longer time"
            )
        if self.retransmit_s < 1 or self.spf_delay_ms < 0:
            raise InternetError(
                f"retransmit_s is {self.retransmit_s} and spf_delay_ms is {self.spf_delay_ms}: "
                "retransmissions are 1 s or more apart, and a delay is 0 or more"
            )
        if not 1 <= self.refresh_s < MAX_AGE:
            raise InternetError(
                f"refresh_s is {self.refresh_s}: it is 1 to {MAX_AGE - 1} s, since an LSA is "
                f"removed at an age of {MAX_AGE} s"
            )


@dataclass(slots=True)
class StoredLsa:
    """An LSA of the database, with the time at which its age was 0."""

    lsa: Lsa
    born: int
    expiry: Timer


def _check_link_cost(cost: int, least: int = 0) -> None:
    if not least <= cost <= MOST_COST:
        raise InternetError(f"a cost of {cost}: it is {least} to {MOST_COST}")


@checked_class(InternetTypeError)
class LinkState:
    """The protocol of one router, whose identifier is ``router``.

    Raises AddressError if another router of the internet has that. What comes from one all the same
    is counted as "own router identifier" in the node's counters: hellos of a neighbour, and LSAs
    with other content than the own one.
    """

    def __init__(
        self, node: Node, router: IPv4Address, settings: LinkStateSettings | None = None
    ) -> None:
        check_router(node)
        self._node = node
        self._agenda = node.agenda
        self.router = router
        self._settings = settings or LinkStateSettings()
        self._flooding = LsaFlooding(self._send, self._settings.retransmit_s * SECOND)
        self._costs: dict[Interface, int] = {}
        self._announced: dict[IPv4Network, int] = {}
        self._sequence = INITIAL_SEQUENCE - 1
        self._originated_at = -MIN_LS_INTERVAL
        self._hello = Timer(self._agenda, self._send_hellos)
        self._refresh = Timer(self._agenda, self._originate)
        self._spf = Timer(self._agenda, self._compute)
        self._pending = Timer(self._agenda, self._originate)
        self.neighbours: dict[tuple[Interface, IPv4Address], Neighbour] = {}
        self.database: dict[IPv4Address, StoredLsa] = {}
        self.computations = 0
        self.messages = 0
        node.take_router_id(router)
        node.join_group(ALL_SPF_ROUTERS)
        node.on_datagram(Protocol.LINK_STATE, self._receive)

    def add_interface(self, interface: Interface, cost: int = 1) -> None:
        """Announce the interface's network, and look for routers on it. Raises InternetError."""
        _check_link_cost(cost, least=1)  # RFC 2328, appendix C.3
        check_own_interface(self._node, interface, self._costs)
        self._costs[interface] = cost
        interface.on_carrier.append(self._carrier_changed)
        self.announce(interface.network, cost)
        self._hello.start(0)

    def announce(self, prefix: IPv4Network, cost: int = 0) -> None:
        """Announce a network of this router. Raises InternetError."""
        _check_link_cost(cost)
        self._announced[prefix] = cost
        self._pending.start(0)

    def retract(self, prefix: IPv4Network) -> None:
        """Announce a network no more."""
        if self._announced.pop(prefix, None) is not None:
            self._pending.start(0)

    def _carrier_changed(self, interface: Interface) -> None:
        if interface.up:
            self._announced[interface.network] = self._costs[interface]
            self._send_hello(interface)
        else:
            self._announced.pop(interface.network, None)
            for neighbour in list(self.neighbours.values()):
                if neighbour.interface is interface:
                    self._remove(neighbour)
        self._pending.start(0)

    def _send_hellos(self) -> None:
        for interface in self._costs:
            self._send_hello(interface)
        self._hello.start(self._settings.hello_s * SECOND)

    def _send_hello(self, interface: Interface) -> None:
        heard = [one.router for one in self.neighbours.values() if one.interface is interface]
        body = encode_hello(interface.network, self._settings.hello_s, self._settings.dead_s, heard)
        self._send(OspfPacket.HELLO, body, interface, ALL_SPF_ROUTERS)

    def _send(self, kind: OspfPacket, body: bytes, interface: Interface, to: IPv4Address) -> None:
        if interface.up:
            self.messages += 1
            packet = encode_packet(kind, self.router, body)
            self._node.send(
                Protocol.LINK_STATE, None, to, packet, ttl=1, interface=interface, tos=0xC0
            )

    def _receive(self, datagram: Datagram, interface: Interface | None) -> None:
        if interface not in self._costs or datagram.source in self._node.addresses:
            return
        assert interface is not None
        try:
            kind, router, body = decode_packet(datagram.payload)
            if router == self.router:
                self._node.counters[OWN_IDENTIFIER] += 1
                return
            if kind is OspfPacket.HELLO:
                self._hear(interface, router, datagram.source, decode_hello(body))
                return
            neighbour = self.neighbours.get((interface, router))
            if neighbour is None or neighbour.state is not NeighbourState.FULL:
                return
            if kind is OspfPacket.UPDATE:
                self._receive_update(decode_update(body), neighbour)
            else:
                self._flooding.receive_acknowledgement(decode_acknowledgement(body), neighbour)
        except PacketError:
            self._node.counters["damaged"] += 1

    def _hear(
        self,
        interface: Interface,
        router: IPv4Address,
        address: IPv4Address,
        hello: tuple[int, int, list[IPv4Address]],
    ) -> None:
        """RFC 2328, section 10.5: intervals must agree."""
        hello_s, dead_s, heard = hello
        if (hello_s, dead_s) != (self._settings.hello_s, self._settings.dead_s):
            self._node.counters["hello intervals differ"] += 1
            return
        neighbour = self.neighbours.get((interface, router))
        if neighbour is None:
            neighbour = self._add_neighbour(interface, router, address)
        neighbour.dead.start(self._settings.dead_s * SECOND)
        listed = self.router in heard
        if listed and neighbour.state is NeighbourState.INIT:
            neighbour.state = NeighbourState.FULL
            # The neighbour may not know yet that it is heard; it ignores updates until it does.
            self._send_hello(interface)
            self._flooding.give(neighbour, [self._aged(one) for one in self.database.values()])
            self._pending.start(0)
        elif not listed and neighbour.state is NeighbourState.FULL:
            neighbour.state = NeighbourState.INIT
            neighbour.unacknowledged.clear()
            self._pending.start(0)

    def _add_neighbour(
        self, interface: Interface, router: IPv4Address, address: IPv4Address
    ) -> Neighbour:
        key = (interface, router)
        neighbour = self.neighbours[key] = Neighbour(
            router,
            address,
            interface,
            Timer(self._agenda, lambda: self._remove(self.neighbours[key])),
            Timer(self._agenda, lambda: self._flooding.give_again(self.neighbours[key])),
        )
        self._send_hello(interface)
        return neighbour

    def _remove(self, neighbour: Neighbour) -> None:
        neighbour.dead.stop()
        neighbour.retransmit.stop()
        del self.neighbours[neighbour.interface, neighbour.router]
        self._pending.start(0)

    def _originate(self) -> None:
        """A new own LSA, if anything in it has changed or it is due to be refreshed."""
        links = tuple(self._own_links())
        known = self.database.get(self.router)
        self._pending.stop()
        if known is not None and known.lsa.links == links and self._refresh.running:
            return
        if self._sequence == LAST_SEQUENCE:
            self._flush()
            return
        self._sequence += 1
        self._originated_at = self._agenda.now
        self._refresh.start(self._settings.refresh_s * SECOND)
        self._install(Lsa(self.router, self._sequence, links), None)

    def _flush(self) -> None:
        """Remove the own LSA everywhere, and begin with the first number when neighbours have had
        the time to hear it (section 12.1.6)."""
        self._sequence = INITIAL_SEQUENCE - 1
        self._pending.start(self._settings.retransmit_s * SECOND)
        if self.router in self.database:
            self._age_out(self.router)

    def _own_links(self) -> Iterable[LsaLink]:
        for neighbour in self.neighbours.values():
            if neighbour.state is NeighbourState.FULL:
                cost = self._costs[neighbour.interface]
                own = neighbour.interface.address
                yield LsaLink(LsaLinkKind.ROUTER, neighbour.router, own, cost)
        for prefix, cost in self._announced.items():
            yield network_link(prefix, cost)

    def _receive_update(self, lsas: list[Lsa], neighbour: Neighbour) -> None:
        """RFC 2328, section 13: take what is newer, and answer older instances with the newer."""
        confirmed = []
        for lsa in lsas:
            known = self.database.get(lsa.router)
            stored = None if known is None else known.lsa
            if lsa.router == self.router and contradicts(lsa, stored):
                self._node.counters[OWN_IDENTIFIER] += 1
            if known is not None and is_older(lsa, known.lsa):
                self._flooding.give(neighbour, [self._aged(known)])
                continue
            confirmed.append(lsa)
            waiting = neighbour.unacknowledged.get(lsa.router)
            if waiting is not None and waiting.sequence <= lsa.sequence:
                del neighbour.unacknowledged[lsa.router]
            if is_newer(lsa, stored):
                self._accept(lsa, neighbour)
        if confirmed:
            body = encode_acknowledgement(confirmed)
            kind = OspfPacket.ACKNOWLEDGEMENT
            self._send(kind, body, neighbour.interface, neighbour.address)

    def _accept(self, lsa: Lsa, neighbour: Neighbour) -> None:
        if lsa.router == self.router:
            # An LSA of this router's former life: overtake its sequence number (section 13.4).
            self._sequence = max(self._sequence, lsa.sequence)
            self._refresh.stop()
            soonest = self._originated_at + MIN_LS_INTERVAL
            self._pending.start(max(0, soonest - self._agenda.now))
            return
        self._install(lsa, neighbour)

    def _install(self, lsa: Lsa, source: Neighbour | None) -> None:
        old = self.database.get(lsa.router)
        if old is not None:
            old.expiry.stop()
        expiry = Timer(self._agenda, lambda: self._age_out(lsa.router))
        if lsa.age < MAX_AGE:
            born = self._agenda.now - lsa.age * SECOND
            self.database[lsa.router] = StoredLsa(lsa, born, expiry)
            expiry.start((MAX_AGE - lsa.age) * SECOND)
        elif old is not None:
            del self.database[lsa.router]
        for neighbour in list(self.neighbours.values()):
            if neighbour.state is NeighbourState.FULL and neighbour is not source:
                self._flooding.give(neighbour, [lsa])
        if (old is None or old.lsa.links != lsa.links or lsa.age == MAX_AGE) and (
            not self._spf.running
        ):
            self._spf.start(self._settings.spf_delay_ms * MILLISECOND)

    def _age_out(self, router: IPv4Address) -> None:
        """An LSA that nobody refreshes: flood it with the greatest age, which removes it."""
        self._install(self.database[router].lsa.at_age(MAX_AGE), None)

    def _aged(self, stored: StoredLsa) -> Lsa:
        return stored.lsa.at_age((self._agenda.now - stored.born) // SECOND)

    def _compute(self) -> None:
        """Shortest paths over the database; their first hops are this router's routes."""
        self.computations += 1
        lsas = {router: stored.lsa for router, stored in self.database.items()}
        routes: dict[IPv4Network, Route] = {}
        hops = self._first_hops()
        for prefix, (cost, first) in shortest_paths(lsas, self.router).items():
            if first is None or first not in hops:
                continue
            neighbour = hops[first]
            routes[prefix] = Route(
                prefix, Origin.LINK_STATE, neighbour.address, neighbour.interface, cost
            )
        self._node.table.replace(Origin.LINK_STATE, routes)

    def _first_hops(self) -> dict[IPv4Address, Neighbour]:
        """The neighbour by the cheapest interface, where several links lead to one router."""
        hops: dict[IPv4Address, Neighbour] = {}
        for one in self.neighbours.values():
            if one.state is not NeighbourState.FULL:
                continue
            other = hops.get(one.router)
            if other is None or self._costs[one.interface] < self._costs[other.interface]:
                hops[one.router] = one
        return hops
