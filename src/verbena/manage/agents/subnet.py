# SPDX-License-Identifier: Apache-2.0
"""A whole InfiniBand subnet in memory: nodes with their agents, links, and the ways of packets.

Programs, ``verbena.manage``'s subnet manager and tests use a ``Subnet`` as they would use a
fabric: ``inject`` sends a management packet from a node's port, and what comes back is handed to
the port's receiver before ``inject`` returns. The order is that of sending. There is no clock:
``advance`` says what time it is.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING, TypeVar

from ..attribute_ids import MgmtClass
from ..codes import PortPhysicalState
from ..errors import MadError
from ..mad import GENERAL_QKEY, MAD_BYTES, PERMISSIVE_LID, MadHeader
from .device_profiles import ADAPTER, SWITCH, DeviceProfile
from .directed_routes import DIRECTED, MOST_HOPS
from .forwarding import FIRST_MULTICAST_LID
from .general_services import answer_gmp
from .lid_routes import LidRoute, walk
from .link_speeds import LinkRate, link_rate
from .lossy_links import damage
from .multicast_routes import MulticastRoute, spread
from .node_agent import NodeAgent
from .node_ports import NodePort
from .packets import Drop, MadPacket, MadReceiver, PortEvent
from .port_states import link_down, link_up, link_width_and_speed
from .sma import answer_smp
from .subnet_routes import DirectedWay, RouteBook, blamed_counters, combined_way, trace
from .tallies import MAD_WORDS
from .violations import p_key_violated_at_switch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Subnet"]

_M = TypeVar("_M", bound=MadHeader)
SMPS = (int(MgmtClass.SUBN_LID_ROUTED), int(MgmtClass.SUBN_DIRECTED_ROUTE))
PURE_ROUTE = bytes(2 * PERMISSIVE_LID.to_bytes(2, "big"))  # DrSLID and DrDLID: no LID-routed part
FIRST_HOST_GUID, FIRST_SWITCH_GUID = 0x0010_0000, 0x2000_0000  # as ibsim gives them
WAKES = (PortPhysicalState.SLEEP, PortPhysicalState.POLLING)
DEFAULT_RATE = "4xEDR"


class Subnet:
    """Nodes, links and the packets between them.

    ``nodes`` is by name, in the order in which they were added. ``now`` is the time in seconds that
    was last given. ``drops`` counts packets that were lost on their ways by the reason, and
    ``on_port_event`` is called with a port and a ``PortEvent``, ``on_routes_changed`` when a way of
    data may be another one, and ``on_read_counters`` before counters are read, for those who count
    packets elsewhere. Mistakes raise MadError.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeAgent] = {}
        self.now = 0.0
        self.drops: Counter[Drop] = Counter()
        self.on_port_event: Callable[[NodePort, PortEvent], None] | None = None
        self.on_routes_changed: Callable[[], None] | None = None
        self.on_read_counters: Callable[[], None] | None = None
        self._queue: deque[tuple[NodeAgent, MadPacket]] = deque()
        self.is_draining = False
        """Whether packets are under way: what is sent now waits for them."""
        self.routes = RouteBook()
        self._lids: dict[int, NodePort] | None = None
        self.with_traps: dict[NodeAgent, None] = {}
        """Nodes that may have traps to send."""
        self._asked: tuple[NodePort, bytes] | None = None
        self._answer: bytes | None = None
        self.random = Random()
        """Decides which packets lossy links lose."""
        self._next_guid = {True: FIRST_SWITCH_GUID, False: FIRST_HOST_GUID}

    def all_drops(self) -> Counter[Drop]:
        """Return how many packets were lost by each reason, on their ways and at the nodes."""
        return sum((node.drops for node in self.nodes.values()), self.drops.copy())

    # ---- nodes and links -----------------------------------------------------------------------

    def add_adapter(
        self,
        name: str,
        *,
        ports: int = 1,
        guid: int | None = None,
        profile: DeviceProfile = ADAPTER,
        system_image_guid: int | None = None,
    ) -> NodeAgent:
        """Add a channel adapter, or a node of another profile, and return it."""
        return self._add(name, ports, guid, profile, system_image_guid)

    def add_switch(
        self,
        name: str,
        *,
        ports: int,
        guid: int | None = None,
        profile: DeviceProfile = SWITCH,
        system_image_guid: int | None = None,
    ) -> NodeAgent:
        """Add a switch with ``ports`` external ports and return it."""
        return self._add(name, ports, guid, profile, system_image_guid)

    def _add(
        self, name: str, ports: int, guid: int | None, profile: DeviceProfile, system: int | None
    ) -> NodeAgent:
        if name in self.nodes:
            raise MadError(f"{name}: there is a node of this name already")
        node = NodeAgent(
            name,
            ports=ports,
            guid=0,
            profile=profile,
            surroundings=self,
        )
        if guid is None:
            guid = self._next_guid[node.is_switch]
            self._next_guid[node.is_switch] += 1 if node.is_switch else ports + 1
        node.set_guid(guid, system)
        self.nodes[name] = node
        return node

    def connect(
        self,
        a: str,
        a_port: int,
        b: str,
        b_port: int,
        *,
        rate: str | LinkRate = DEFAULT_RATE,
    ) -> None:
        """Connect two ports by a cable; the link trains at once to what both ends can do.

        ``rate`` is the fastest that the two ports can do from now on.
        """
        one, other = self._cabled(a, a_port), self._cabled(b, b_port)
        for port in (one, other):
            if port.peer is not None:
                raise MadError(f"{port.node.name}: port {port.number} is in use already")
        if one is other:
            raise MadError(f"{a}: port {a_port} is to be connected to itself")
        speed = link_rate(rate) if isinstance(rate, str) else rate
        one.peer, other.peer = other, one
        for port in (one, other):
            port.is_cut = False
            port.set_rate(speed)
        self._train(one)

    def cut(self, name: str, port: int) -> None:
        """Let the link at a port fail: both ends go DOWN, and nothing passes until ``restore``."""
        one, other = self._link(name, port)
        one.is_cut = other.is_cut = True
        self._fail(one, other)
        self.send_traps()

    def restore(self, name: str, port: int) -> None:
        """Repair the link at a port: it trains again, and its ends become INIT."""
        one, other = self._link(name, port)
        one.is_cut = other.is_cut = False
        self._train(one)
        self.send_traps()

    def set_loss(self, name: str, port: int, chance: float) -> None:
        """Let the link at a port lose packets with this chance, from 0 to 1, in each direction."""
        if not 0 <= chance <= 1:
            raise MadError(f"the chance of a loss is from 0 to 1, and not {chance:g}")
        self.read_counters()
        for each in self._link(name, port):
            each.loss = chance
        self.routes.forget_all()
        self.routing_changed()

    def set_throttle(self, name: str, port: int, bits_per_second: float) -> None:
        """Let both ends of the link at a port take no more data than so many bits; 0: all."""
        self.read_counters()
        for each in self._link(name, port):
            each.throttle = bits_per_second
        self.routing_changed()

    def set_cable_rate(self, name: str, port: int, rate: LinkRate | None) -> None:
        """Let the link at a port train to this rate at most, which it does at once; None: any."""
        one, other = self._link(name, port)
        if one.cable_rate == rate:
            return
        one.cable_rate = other.cable_rate = rate
        if one.is_up:
            self._fail(one, other)
            self._train(one)
            self.send_traps()

    def disconnect(self, name: str, port: int) -> None:
        """Take away the cable at a port."""
        one, other = self._link(name, port)
        self._fail(one, other)
        one.peer = other.peer = None
        one.is_cut = other.is_cut = False
        self.send_traps()

    def remove(self, name: str) -> None:
        """Take away a node and its cables."""
        node = self.node(name)
        for port in node.ports.values():
            if port.peer is not None:
                self.disconnect(name, port.number)
        del self.nodes[name]
        self.with_traps.pop(node, None)
        self.routing_changed()

    def node(self, name: str | NodeAgent) -> NodeAgent:
        """Return a node by its name. Raises MadError."""
        found = self.nodes.get(name) if isinstance(name, str) else name
        if found is None:
            raise MadError(f"there is no node {name!r}")
        return found

    def _cabled(self, name: str, number: int) -> NodePort:
        port = self.node(name).ports.get(number)
        if port is None or number == 0:
            raise MadError(f"{name} has no port {number} for a cable")
        return port

    def _link(self, name: str, number: int) -> tuple[NodePort, NodePort]:
        port = self._cabled(name, number)
        if port.peer is None:
            raise MadError(f"{name} has no cable at port {number}")
        return port, port.peer

    def _train(self, port: NodePort) -> None:
        """Bring up a link if both ends and the cable allow it."""
        peer = port.peer
        if peer is None or port.is_cut or port.is_up or peer.is_up:
            return
        states = port.physical_state, peer.physical_state
        if not all(state in WAKES for state in states) or states == (WAKES[0], WAKES[0]):
            return
        active = link_width_and_speed(port, peer)
        if active is not None:
            self.routes.forget_all()
            link_up(port, active)
            link_up(peer, active)

    def _fail(self, one: NodePort, other: NodePort) -> None:
        """The link is lost: both ends count it and go DOWN."""
        self.read_counters()
        for port in (one, other):
            if port.is_up:
                port.tally.count("link_downed")
                link_down(port)
        self.routes.forget_all()

    # ---- what agents tell (NodeSurroundings) ---------------------------------------------------

    def link_commanded(self, port: NodePort, physical_state: int) -> None:
        """See ``NodeSurroundings``: the other end loses the link, too, and it may train again."""
        self.read_counters()
        self.routes.forget_all()
        peer = port.peer
        if peer is not None and peer.is_up:
            peer.tally.count("link_downed")
            link_down(peer)
        self._train(port)

    def routing_changed(self) -> None:
        """See ``NodeSurroundings``: ways by LIDs that were computed no longer hold."""
        self.routes.forget_lids()
        self._lids = None
        if self.on_routes_changed is not None:
            self.on_routes_changed()

    def port_event(self, port: NodePort, event: PortEvent) -> None:
        """See ``NodeSurroundings``."""
        if self.on_port_event is not None:
            self.on_port_event(port, event)

    def traps_wait(self, node: NodeAgent) -> None:
        """See ``NodeSurroundings``."""
        self.with_traps[node] = None

    def read_counters(self) -> None:
        """See ``NodeSurroundings``: packets are counted by route, and here at the ports."""
        self.routes.settle(MAD_WORDS)
        if self.on_read_counters is not None:
            self.on_read_counters()

    # ---- programs ------------------------------------------------------------------------------

    def attach(self, name: str | NodeAgent, receiver: MadReceiver | None, port: int = 1) -> None:
        """Give the packets for programs at an end port to ``receiver``, or to nobody (None).

        These are responses, traps, classes without an agent, and SMInfo where IsSM is set and no
        ``SmPort`` runs. On a switch the port is 0, whatever is given.
        """
        node = self.node(name)
        number = node.end_port(port).number
        node.receivers.pop(number, None)
        if receiver is not None:
            node.receivers[number] = receiver

    def inject(
        self,
        name: str | NodeAgent,
        mad: MadPacket | MadHeader | bytes,
        *,
        port: int = 1,
        dlid: int = PERMISSIVE_LID,
        sl: int = 0,
        p_key: int = 0xFFFF,
    ) -> None:
        """Send a management packet from an end port, and deliver it and all that follows from it.

        A directed-route SMP has hop pointer 0, or as a response the one with which the request
        came. ``dlid`` is the destination of another MAD. A ``MadPacket`` has its own headers, and
        its port. Within a receiver the packet is queued.
        """
        node = self.node(name)
        if not isinstance(mad, MadPacket):
            raw = mad.pack() if isinstance(mad, MadHeader) else bytes(mad)
            end = node.end_port(port)
            general = len(raw) > 1 and raw[1] not in SMPS
            directed = len(raw) > 1 and raw[1] == DIRECTED and dlid == PERMISSIVE_LID
            mad = MadPacket(
                raw,
                end.number,
                dlid,
                PERMISSIVE_LID if directed else end.lid,
                int(general),
                int(general),
                sl,
                p_key,
                GENERAL_QKEY if general else 0,
            )
        self._queue.append((node, mad))
        if not self.is_draining:
            self._drain()

    def ask(
        self,
        name: str | NodeAgent,
        mad: _M,
        *,
        port: int = 1,
        dlid: int = PERMISSIVE_LID,
        sl: int = 0,
        p_key: int = 0xFFFF,
    ) -> _M | None:
        """Send a request as ``inject`` does and return the response, or None if there is none.

        The response does not go to the port's receiver. Raises MadError within a receiver.
        """
        if self.is_draining:
            raise MadError("ask() is not possible within a receiver, which packets are waiting for")
        node = self.node(name)
        self._asked = node.end_port(port), mad.pack()[8:16]
        self._answer = None
        try:
            self.inject(node, mad, port=port, dlid=dlid, sl=sl, p_key=p_key)
        finally:
            self._asked = None
        return None if self._answer is None else type(mad).unpack(self._answer)

    @property
    def next_due(self) -> float | None:
        """When ``advance`` has something to send, in seconds; None: never."""
        if not self.with_traps:
            return None
        times = [node.traps.next_due for node in self.with_traps]
        return min((time for time in times if time is not None), default=None)

    def advance(self, now: float) -> None:
        """Say what time it is, and send the traps that are due. Raises MadError if it goes back."""
        if now < self.now:
            raise MadError(f"it is {self.now} s already, and not {now} s")
        self.now = now
        self.send_traps()

    def send_traps(self) -> None:
        """Send the traps that are due."""
        for node in list(self.with_traps):
            due = node.traps.next_due
            if due is None:
                del self.with_traps[node]
            elif due <= self.now:
                self._queue.extend((node, packet) for packet in node.traps.due(self.now))
        if self._queue and not self.is_draining:
            self._drain()

    # ---- delivery ------------------------------------------------------------------------------

    def _drain(self) -> None:
        self.is_draining = True
        queue = self._queue
        try:
            while queue:
                node, packet = queue.popleft()
                if len(packet.mad) != MAD_BYTES or packet.mad[0] != 1:
                    self.drops[Drop.NO_MAD] += 1
                elif packet.mad[1] == DIRECTED and not packet.qp:
                    self._send_directed(node, packet)
                else:
                    self._send_by_lid(node, packet)
                if self.with_traps and not queue:
                    self.send_traps()
        finally:
            self.is_draining = False

    def _hand(self, node: NodeAgent, packet: MadPacket) -> None:
        """Give a packet for programs to its end port."""
        if self._asked is not None:
            end, transaction = self._asked
            is_here = end.node is node and end.number == (0 if node.is_switch else packet.port)
            if is_here and packet.mad[3] & 0x80 and packet.mad[8:16] == transaction:
                self._answer = packet.mad
                return
        if not node.offer(packet):
            self.drops[Drop.NO_RECEIVER] += 1

    def _send_directed(self, node: NodeAgent, packet: MadPacket) -> None:
        mad = packet.mad
        hops = mad[7]
        if hops > MOST_HOPS:
            self.drops[Drop.ROUTE_INVALID] += 1
        elif mad[4] & 0x80:
            self._send_back(node, packet, hops)
        elif mad[6]:
            self.drops[Drop.ROUTE_INVALID] += 1
        else:
            path = mad[129 : 129 + hops]
            if mad[32:36] == PURE_ROUTE:
                way = self.directed_way(node, packet.port, path)
            else:
                way = combined_way(node, packet, path)
            if way.problem is not None:
                way.count_request(self.routes)
                self.drops[way.problem] += 1
                return
            if way.is_lossy and self._is_damaged(way.links):
                return
            if way.links:
                way.count_request(self.routes)
            self._smp_arrived(node, packet, way, hops)

    def _smp_arrived(self, node: NodeAgent, packet: MadPacket, way: DirectedWay, hops: int) -> None:
        """Let the node at the end of a way answer an SMP, and bring its response back.

        The return path is written into the response, unless a check of the M_Key, whose trap has
        it, or a program of that node reads it.
        """
        there, end, mad = way.node, way.end, packet.mad
        # Each port of an adapter with several has a key of its own.
        has_keys = end.m_key or end.lease_end is not None
        if has_keys or (not there.is_switch and len(there.ports) > 1):
            mad = _with_return_path(mad, way, hops)
        response = answer_smp(there, mad, way.ingress, self.now)
        if isinstance(response, bytearray):
            response[6] = 0
            response[193 : 193 + hops] = way.came_by
            if way.is_lossy and self._is_damaged([link[::-1] for link in reversed(way.links)]):
                return
            if way.links:
                way.count_response(self.routes)
            self._hand(node, MadPacket(bytes(response), packet.port, source_qp=packet.qp))
        elif isinstance(response, Drop):
            self.drops[response] += 1
        elif response is None:
            arrived = _with_return_path(packet.mad, way, hops)
            self._hand(there, packet._replace(mad=arrived, port=way.ingress))

    def _send_back(self, node: NodeAgent, packet: MadPacket, hops: int) -> None:
        """Bring back a response that a program sends."""
        mad = packet.mad
        if hops and mad[6] != hops + 1:
            self.drops[Drop.ROUTE_INVALID] += 1
            return
        way = self.directed_way(node, packet.port, mad[193 : 193 + hops][::-1])
        if way.problem is not None:
            self.drops[way.problem] += 1
            return
        if way.is_lossy and self._is_damaged(way.links):
            return
        way.count_request(self.routes)
        header = bytearray(mad)
        header[6] = 0
        self._hand(way.node, packet._replace(mad=bytes(header), port=way.ingress))

    def _is_damaged(self, links: list[tuple[NodePort, NodePort]]) -> bool:
        """Draw whether a MAD is lost on lossy links."""
        is_lost = damage(links, self.random)
        if is_lost:
            self.drops[Drop.DAMAGED] += 1
        return is_lost

    def directed_way(self, node: NodeAgent, port: int, path: bytes) -> DirectedWay:
        """Return where a directed route from a node's end port leads; it is kept."""
        ways = self.routes.directed(node, port)
        way = ways.get(path)
        if way is None:
            way = ways[path] = trace(node, port, path)
        return way

    def _send_by_lid(self, node: NodeAgent, packet: MadPacket) -> None:
        smp = packet.qp == 0
        origin = node.ports.get(packet.port)
        if origin is None or not origin.is_end:
            self.drops[Drop.NO_SOURCE] += 1
            return
        key = packet.port, packet.dlid, -1 if smp else packet.sl, packet.p_key
        ways = self.routes.by_lid(node)
        way = ways.get(key)
        if way is None:
            route = walk(origin, packet.dlid, sl=packet.sl, p_key=packet.p_key, smp=smp, moves=True)
            # Walking may have made ports ACTIVE, which cleared what was known.
            ways = self.routes.by_lid(node)
            way = ways[key] = DirectedWay.of_route(route, node)
        if way.is_lossy and self._is_damaged(way.links):
            return
        way.count_request(self.routes)
        if way.problem is not None:
            self.drops[way.problem] += 1
            if way.problem is Drop.P_KEY_AT_SWITCH and way.blamed is not None:
                p_key_violated_at_switch(way.blamed[0], packet)
            return
        self._arrived_by_lid(way, packet, smp)

    def _arrived_by_lid(self, way: DirectedWay, packet: MadPacket, smp: bool) -> None:
        there = way.node
        arrived = packet._replace(port=way.ingress)
        answered: bytes | bytearray | Drop | None
        if smp:
            answered = answer_smp(there, packet.mad, way.ingress, self.now, packet.slid)
            if answered is None:
                self._hand(there, arrived)
        elif packet.mad[3] & 0x80:
            answered = None
            self._hand(there, arrived)
        else:
            answered = answer_gmp(there, arrived, self.now)
        if isinstance(answered, Drop):
            self.drops[answered] += 1
        elif answered:
            end = way.end
            reply = arrived._replace(port=end.number).answer(bytes(answered))
            self._queue.append((there, reply))

    # ---- ways ----------------------------------------------------------------------------------

    def port_of_lid(self, lid: int) -> NodePort | None:
        """Return the end port that has a LID, or None."""
        if self._lids is None:
            self._lids = {}
            for node in self.nodes.values():
                for port in node.end_ports():
                    for each in port.lids:
                        self._lids.setdefault(each, port)
        return self._lids.get(lid)

    def multicast_path(
        self, slid: int, mlid: int, *, sl: int = 0, p_key: int = 0xFFFF
    ) -> MulticastRoute:
        """Return where the copies of a packet to a multicast LID go. Nothing is sent or counted.

        Raises MadError if no port has the source LID.
        """
        return spread(self._source(slid), mlid, sl=sl, p_key=p_key)

    def carry(
        self,
        slid: int,
        dlid: int,
        *,
        packets: int,
        words: int,
        sl: int = 0,
        p_key: int = 0xFFFF,
    ) -> LidRoute | MulticastRoute:
        """Send data packets between LIDs: count them at the ports of their way, and return it.

        ``words`` of 4 bytes are the length of all, from LRH to ICRC. A packet that does not arrive
        is counted where it is lost. An ARMED port that one reaches becomes ACTIVE. Raises MadError
        if no port has the source LID.
        """
        origin = self._source(slid)
        if dlid >= FIRST_MULTICAST_LID:
            group = spread(origin, dlid, sl=sl, p_key=p_key, moves=True)
            self.charge(group.links, packets, words, multicast=True)
            for why, at in group.lost:
                self._blame(why, at, group.links, packets)
            return group
        route = walk(origin, dlid, sl=sl, p_key=p_key, moves=True)
        self.charge(route.charges, packets, words)
        if route.problem is not None and route.at is not None:
            self._blame(route.problem, route.at, route.charges, packets)
        return route

    def charge(
        self,
        links: list[tuple[NodePort, NodePort]],
        packets: int,
        words: int,
        *,
        multicast: bool = False,
    ) -> None:
        """Count packets with so many words in all at both ports of each of these links."""
        for out, into in links:
            out.tally.sent(packets, words, multicast)
            into.tally.received(packets, words, multicast)

    def _blame(
        self, why: Drop, at: NodePort, links: list[tuple[NodePort, NodePort]], packets: int
    ) -> None:
        for name in blamed_counters(why, at, links):
            at.tally.count(name, packets)

    def _source(self, slid: int) -> NodePort:
        origin = self.port_of_lid(slid)
        if origin is None:
            raise MadError(f"no port has LID {slid}")
        return origin

    def path(
        self, slid: int, dlid: int, *, sl: int = 0, p_key: int = 0xFFFF, smp: bool = False
    ) -> LidRoute:
        """Return the way of a packet between two LIDs, or why it would not arrive.

        ``problem`` of the result is the reason and ``at`` the place. Nothing is sent or counted.
        """
        origin = self.port_of_lid(slid)
        if origin is None:
            return LidRoute([], [], []).failed(Drop.NO_SOURCE, None)
        if self.port_of_lid(dlid) is None:
            return LidRoute([], [], []).failed(Drop.NO_LID, None)
        route = walk(origin, dlid, sl=sl, p_key=p_key, smp=smp)
        if route.problem is None and not smp:
            end = route.end
            assert end is not None
            if not origin.in_partition(p_key):
                return route.failed(Drop.P_KEY, origin)
            if end.find_p_key(p_key) is None:
                return route.failed(Drop.P_KEY, end)
        return route


def _with_return_path(mad: bytes, way: DirectedWay, hops: int) -> bytes:
    """Return an SMP as it arrives at the end of its directed route."""
    if not hops:
        return mad
    header = bytearray(mad)
    header[6] = hops + 1
    header[193 : 193 + hops] = way.came_by
    return bytes(header)
