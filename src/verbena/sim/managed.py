# SPDX-License-Identifier: Apache-2.0
"""The management agents of a simulated InfiniBand fabric, and its links as they see them.

``ManagedWorld`` gives each node of a World a ``NodeAgent`` of ``verbena.manage.agents``, which
takes the node's management packets and answers them after a time. What a subnet manager sets at an
agent, LIDs, forwarding tables, lanes and states, holds in the World from then on. ``sim.managers``
has the subnet managers, and scenarios use both. Nothing here is called for packets of data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.manage.agents import (
    ADAPTER,
    SWITCH,
    MadPacket,
    NodeAgent,
    NodePort,
    PortEvent,
    subnet_of_fabric,
)
from verbena.manage.agents.directed_routes import is_directed
from verbena.manage.agents.port_states import link_down, link_up, link_width_and_speed
from verbena.manage.codes import PortPhysicalState, PortState, VirtualLanes
from verbena.manage.smp_attributes import PortInfo, SwitchInfo
from verbena.sim.arguments import require
from verbena.sim.doors import Mad
from verbena.sim.managed_ports import ManagedPorts

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.sim._world import World

__all__ = ["AgentTimes", "ManagedWorld", "Taker", "WaitingFlows"]

SECOND = 10**12
NO_PATH = 255
WAKES = (PortPhysicalState.SLEEP, PortPhysicalState.POLLING)
COUNTED_SENT = {"xmit_packets": "packets", "unicast_xmit_packets": "packets"}
COUNTED_RECEIVED = {"rcv_packets": "packets", "unicast_rcv_packets": "packets"}

# Takes a packet that no agent answers, of one port, and returns whether it has taken it.
Taker = Callable[[MadPacket], bool]


@dataclass(frozen=True)
class AgentTimes:
    """How long management takes, in ps. A node does one thing after the other.

    ``answer``: an agent has a request until its answer leaves. ``forward``: a switch has a packet
    that goes on along its directed route. ``program``: a subnet manager, or another program of
    management packets, has a packet until it sends what follows. ``notice``: from the end of a link
    until its ports have noticed, and from its return until it has trained.
    """

    answer: int = 20_000_000
    forward: int = 2_000_000
    program: int = 5_000_000
    notice: int = 100_000_000


@dataclass(eq=False)
class _Node:
    """A node of the world: its agent, and of a host the agent's port that it is."""

    number: int
    agent: NodeAgent
    port: int  # 0: a switch
    lids: tuple[int, int] = (0, 0)  # the first and the LMC, as the world has them
    ports: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    masks: dict[tuple[int, int], bytes] = field(default_factory=dict)
    lanes: bytes = b""


@dataclass
class WaitingFlows:
    """Flows that wait for their ports. ``first`` is the number of the first, once they begin."""

    first: int | None = None


class _Around:
    """What an agent tells of itself (``NodeSurroundings``)."""

    def __init__(self, managed: ManagedWorld, agent: NodeAgent) -> None:
        self._managed, self._agent = managed, agent

    def link_commanded(self, port: NodePort, physical_state: int) -> None:
        """The subnet manager takes the link down."""
        self._managed._commanded(port)

    def routing_changed(self) -> None:
        """Tables, LIDs or states have changed."""
        self._managed._changed[self._agent] = None
        for each in self._managed.on_routes_changed:
            each()

    def port_event(self, port: NodePort, event: PortEvent) -> None:
        """A host's programs are told."""
        for each in self._managed.on_port_event:
            each(port, event)

    def traps_wait(self, node: NodeAgent) -> None:
        """The node has traps to send."""
        self._managed._trap_due(node)

    def read_counters(self) -> None:
        """The world's counters are always up to date; others may count, too."""
        for each in self._managed.on_read_counters:
            each()


class _LinkCounters:
    """What the world has counted at the ports of a node (``CounterSource``)."""

    def __init__(self, managed: ManagedWorld, agent: NodeAgent) -> None:
        self._managed, self._agent = managed, agent

    def port_totals(self, port: int) -> Mapping[str, int]:
        """Return packets and data, which the far end of the link has sent or is sent."""
        here = self._agent.ports.get(port)
        if here is None or here.peer is None:
            return {}
        out, into = self._managed.link_row(here), self._managed.link_row(here.peer)
        found = {name: int(out[key]) for name, key in COUNTED_SENT.items()}
        found |= {name: int(into[key]) for name, key in COUNTED_RECEIVED.items()}
        found |= {"xmit_data": int(out["bytes"]) // 4, "rcv_data": int(into["bytes"]) // 4}
        return {**found, **self._managed.ports.totals(here)}


class ManagedWorld:
    """A World of InfiniBand with the agents of its nodes.

    ``world`` is one that ``build`` or ``build_bare`` made of ``fabric``. Its switches have a queue
    for VL15, or no lanes. ``bare``: the nodes have no LIDs, no tables, and ports in INIT; without
    it they have what the world has, as if a subnet manager had set it. ``agents`` are by the
    fabric's names, and have the GUIDs of the world's addresses. ``discarded`` counts packets that
    came to a dead node. Functions in ``on_port_event`` are called with a port and a ``PortEvent``,
    those in ``on_routes_changed`` when tables, LIDs or states have changed, and those in
    ``on_read_counters`` before counters are read.

    Raises TypeError and ValueError.
    """

    def __init__(
        self,
        world: World,
        fabric: Fabric,
        *,
        bare: bool = True,
        times: AgentTimes | None = None,
    ) -> None:
        from verbena.fabrics import Fabric

        require("fabric", fabric, Fabric, "the Fabric that the world was built of")
        self.world, self.fabric, self.times = world, fabric, times or AgentTimes()
        tables = fabric.tables()
        if world.nodes < tables.end_count + tables.switch_count:
            raise ValueError(f"the world has {world.nodes} nodes, and {fabric.name} has more")
        lanes = [world.lane_count(tables.end_count + n) for n in range(tables.switch_count)]
        lane_code = _lane_code(min(lanes, default=1))
        self.agents = subnet_of_fabric(
            fabric,
            adapter=replace(ADAPTER, vl_cap=lane_code),
            switch=replace(SWITCH, vl_cap=lane_code),
        ).nodes
        self.on_port_event: list[Callable[[NodePort, PortEvent], None]] = []
        self.on_routes_changed: list[Callable[[], None]] = []
        self.on_read_counters: list[Callable[[], None]] = []
        self.discarded: Counter[str] = Counter()
        self._nodes: list[_Node] = []
        self._of: dict[tuple[NodeAgent, int], _Node] = {}
        self._takers: dict[tuple[NodeAgent, int], list[Taker]] = {}
        self._free_at: dict[NodeAgent, int] = {}
        self._changed: dict[NodeAgent, None] = {}
        self._trapping: dict[NodeAgent, int] = {}
        self._dead: set[NodeAgent] = set()
        self._holders: dict[int, _Node] = {}
        self._row: dict[tuple[int, int], int] = {}
        self._links: NDArray[np.void] = np.zeros(0, np.void)
        self._links_at = -1  # the number of events at which they were read
        self._waiting: list[Callable[[], bool]] = []  # flows that have not begun
        self.stops = False  # nothing that repeats is done again once no flow is left
        names = tables.names
        for end, (host, port) in enumerate(
            zip(tables.end_node.tolist(), tables.end_port.tolist(), strict=True)
        ):
            self._add(end, self.agents[names[host]], port)
        for number in range(tables.switch_count):
            self._add(tables.end_count + number, self.agents[names[tables.host_count + number]], 0)
        if bare:
            world.take_lids([node.number for node in self._nodes])
        else:
            self._take_over()
        self.ports = ManagedPorts(self)
        for agent in self.agents.values():
            self.ports.settle(agent)
        for node in self._nodes:
            world.serve(node.number, self._arrived)

    def _add(self, number: int, agent: NodeAgent, port: int) -> None:
        node = _Node(number, agent, port)
        guid = self.world.address(number).guid
        if not port or port == min(agent.ports):
            agent.set_guid(guid)
        agent.set_port_guid(port, guid)
        agent.surroundings = _Around(self, agent)
        agent.counter_source = _LinkCounters(self, agent)
        self._nodes.append(node)
        for each in agent.ports if not port else [port]:
            self._of[agent, each] = node

    def _take_over(self) -> None:
        """Let the agents have what the world has."""
        for node in self._nodes:
            agent, address = node.agent, self.world.address(node.number)
            node.lids = address.lid, address.lmc
            self._holders |= dict.fromkeys(address.lids, node)
            PortInfo.put(agent.ports[node.port].info, 0, lid=address.lid, lmc=address.lmc)
        top = max(self._holders, default=0)
        for node in self._nodes:
            for port in (
                node.agent.ports.values() if not node.port else [node.agent.ports[node.port]]
            ):
                if port.is_up:
                    port.put_state(PortState.ACTIVE)
            if node.agent.forwarding is not None:
                SwitchInfo.put(node.agent.switch_info, 0, linear_fdb_top=top)
                for block in range(top // 64 + 1):
                    ports = self.world.linear_block(node.number, block)
                    node.agent.forwarding.set_linear_block(block, ports)
                node.ports = self._wanted_ports(node.agent)

    # ---- what others ask -------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The world's time in seconds."""
        return self.world.now / SECOND

    def agent(self, name: str) -> NodeAgent:
        """Return the agent of a node by the fabric's name. Raises ValueError."""
        found = self.agents.get(name)
        if found is None:
            raise ValueError(f"{self.fabric.name} has no node {name!r}")
        return found

    def place(self, port: NodePort) -> tuple[int, int]:
        """Return the node and port of the world for a port of an agent."""
        node = self._of[port.node, port.number]
        return node.number, 0 if node.port else port.number

    def node_of(self, port: NodePort) -> int:
        """Return the node of the world that an end port is."""
        return self._of[port.node, port.number].number

    def port_of(self, number: int) -> NodePort:
        """Return the end port of an agent that a node of the world is."""
        node = self._nodes[number]
        return node.agent.ports[node.port]

    def port_at(self, number: int, port: int) -> NodePort:
        """Return the port of an agent for a node and port of the world, as ``place`` has them."""
        node = self._nodes[number]
        return node.agent.ports[node.port or port]

    def attach(self, port: NodePort, taker: Taker, *, first: bool = False) -> None:
        """Give the packets that no agent answers at an end port to ``taker``, behind others, or
        before them with ``first``."""
        takers = self._takers.setdefault((port.node, port.number), [])
        takers.insert(0 if first else len(takers), taker)
        port.node.receivers[port.number] = partial(_offer, takers)

    def detach(self, port: NodePort, taker: Taker) -> None:
        """Undo ``attach``."""
        self._takers[port.node, port.number].remove(taker)

    def send(self, port: NodePort, packets: Iterable[MadPacket]) -> None:
        """Send packets of a program at an end port. Those to the node itself take their time."""
        agent = port.node
        for packet in packets:
            if not is_directed(packet.mad):
                if port.has_lid(packet.dlid):
                    self._later(
                        agent, partial(self._came, agent, packet._replace(port=port.number))
                    )
                else:
                    self._transmit(agent, packet._replace(port=port.number))
            elif packet.mad[7]:
                for each in agent.send(packet, self.now):
                    self._transmit(agent, each)
            else:
                self._later(agent, partial(self._ask_itself, agent, packet))

    def _ask_itself(self, agent: NodeAgent, packet: MadPacket, world: World) -> None:
        for each in agent.send(packet, self.now):
            self._transmit(agent, each)
        self.settle()

    def after(self, delay: int, function: Callable[[], object]) -> None:
        """Call a function after so many ps."""
        self.world.call_at(self.world.now + delay, lambda world: function())

    def rests(self) -> bool:
        """Whether nothing is to be repeated any more: the flows have ended, with ``stops``."""
        return self.stops and not self.world.flows_left

    # ---- flows -----------------------------------------------------------------------------------

    def add_flows(
        self, source: ArrayLike, target: ArrayLike, size: ArrayLike, start: int = 0, **more: Any
    ) -> WaitingFlows:
        """Add flows to the world as soon as the ports of their hosts are ACTIVE, and tables lead
        from each to the other, but not before ``start``. ``more``: see ``World.add_flows``.
        """
        pairs = {
            (self.port_of(int(one)), self.port_of(int(other)))
            for one, other in np.broadcast(source, target)
        }
        waiting = WaitingFlows()

        def begin() -> bool:
            if not all(self.ports.leads(one, other) for one, other in pairs):
                return False
            now = self.world.now
            waiting.first = self.world.add_flows(source, target, size, max(now, start), **more)
            return True

        self._waiting.append(begin)
        self._begin_waiting()
        return waiting

    def _begin_waiting(self) -> None:
        if self._waiting:
            self._waiting = [begin for begin in self._waiting if not begin()]

    # ---- links and deaths ------------------------------------------------------------------------

    def set_link(self, name: str, port: int, up: bool, at: int) -> None:
        """The link at a port goes down or comes back at a time in ps; its ends notice later.

        Raises ValueError if nothing is plugged in.
        """
        one = self.agent(name).ports.get(port)
        if one is None or one.peer is None:
            raise ValueError(f"{name} has no link at port {port}")
        self.world.set_link(*self.place(one), up, at)
        self.tell_link(one, up, at)

    def tell_link(self, port: NodePort, up: bool, at: int) -> None:
        """Have the ends of a link notice that the world's link goes down, or has come back."""
        function = self._train if up else self._fail
        self.world.call_at(at + self.times.notice, lambda world: function(port))

    def kill(self, name: str, at: int) -> None:
        """A node dies at a time in ps: its links go down, and its agent takes nothing any more."""
        agent = self.agent(name)
        for port in agent.ports.values():
            if port.peer is not None:
                self.set_link(name, port.number, False, at)
        self.world.call_at(at, lambda world: self._dead.add(agent))

    def _fail(self, one: NodePort) -> None:
        other = one.peer
        for port in (one,) if other is None else (one, other):
            port.is_cut = True
            if port.is_up and port.node not in self._dead:
                port.tally.count("link_downed")
                link_down(port)
        self.settle()

    def _train(self, one: NodePort) -> None:
        other = one.peer
        if other is None or one.is_up or other.is_up:
            return
        one.is_cut = other.is_cut = False
        states = one.physical_state, other.physical_state
        dead = one.node in self._dead or other.node in self._dead
        active = link_width_and_speed(one, other)
        if not dead and active is not None and all(state in WAKES for state in states):
            link_up(one, active)
            link_up(other, active)
        self.settle()

    def _commanded(self, port: NodePort) -> None:
        """A Set takes a link down: the other end loses it, and it trains again if it may."""
        other = port.peer
        if other is None or port.is_cut:
            return
        if other.is_up:
            other.tally.count("link_downed")
            link_down(other)
        self.after(self.times.notice, partial(self._train, port))

    # ---- packets ---------------------------------------------------------------------------------

    def _arrived(self, world: World, number: int, mad: Mad) -> None:
        node = self._nodes[number]
        agent = node.agent
        if agent in self._dead:
            self.discarded[agent.name] += 1
            return
        packet = MadPacket(
            mad.mad,
            node.port or mad.port,
            mad.dlid,
            mad.slid,
            mad.qp,
            mad.source_qp,
            mad.sl,
            mad.pkey,
            mad.qkey,
        )
        self._later(agent, partial(self._came, agent, packet), self._cost(agent, packet))

    def _cost(self, agent: NodeAgent, packet: MadPacket) -> int:
        mad, times = packet.mad, self.times
        if len(mad) == 256 and is_directed(mad) and not packet.qp:
            pointer, count = mad[6], mad[7]
            last = pointer == 1 if mad[4] & 0x80 else pointer == count
            if not last:
                return times.forward
        elif packet.qp:
            return times.program if self._takers else times.answer
        return times.program if len(mad) == 256 and mad[3] & 0x80 else times.answer

    def _later(
        self, agent: NodeAgent, function: Callable[[World], None], cost: int | None = None
    ) -> None:
        """Do something when a node has done what it has to do before."""
        begin = max(self.world.now, self._free_at.get(agent, 0))
        self._free_at[agent] = end = begin + (self.times.answer if cost is None else cost)
        if end == self.world.now:
            function(self.world)
        else:
            self.world.call_at(end, function)

    def _came(self, agent: NodeAgent, packet: MadPacket, world: World) -> None:
        if agent in self._dead:
            self.discarded[agent.name] += 1
            return
        self.ports.count_violations(agent)
        for each in agent.receive(packet, self.now):
            self._transmit(agent, each)
        self.ports.note_set(agent, packet.mad)
        self.settle()

    def _transmit(self, agent: NodeAgent, packet: MadPacket) -> None:
        node = self._of.get((agent, packet.port))
        if node is None or agent in self._dead:
            self.discarded[agent.name] += 1
            return
        port = 1 if node.port else packet.port
        if not node.port and not is_directed(packet.mad):
            port = 0  # by the table
        self.world.send_mad(
            node.number,
            Mad(
                packet.mad,
                port,
                packet.dlid,
                packet.slid,
                packet.qp,
                packet.source_qp,
                packet.sl,
                packet.p_key,
                packet.q_key,
            ),
        )

    def _trap_due(self, agent: NodeAgent) -> None:
        due = agent.traps.next_due
        if due is None or self.rests():
            return
        at = max(self.world.now, math.ceil(due * SECOND) if math.isfinite(due) else 0)
        if self._trapping.get(agent, math.inf) <= at:
            return
        self._trapping[agent] = at
        self.world.call_at(at, partial(self._send_traps, agent, at))

    def _send_traps(self, agent: NodeAgent, at: int, world: World) -> None:
        if self._trapping.get(agent) != at:
            return
        del self._trapping[agent]
        due = agent.traps.next_due
        if agent in self._dead or due is None:
            return
        for packet in agent.traps.due(max(self.now, due)):
            end = agent.ports[packet.port]
            self.send(end, [packet])
        self._trap_due(agent)

    # ---- what the world has of the agents --------------------------------------------------------

    def settle(self) -> None:
        """Give the world what has changed at agents."""
        while self._changed:
            agent = next(iter(self._changed))
            del self._changed[agent]
            for port in agent.end_ports():
                node = self._of.get((agent, port.number))
                if node is not None:
                    self._settle_lids(node, port)
            if agent.is_switch:
                self._settle_switch(self._of[agent, 0])
            self.ports.settle(agent)
        self._begin_waiting()

    def _settle_lids(self, node: _Node, port: NodePort) -> None:
        lids = port.lids
        wanted = (port.lid, len(lids).bit_length() - 1 if lids else 0)
        if wanted == node.lids or port.lid % max(len(lids), 1):
            return
        for lid in lids:  # what another node has had is its no more
            holder = self._holders.get(lid)
            if holder is not None and holder is not node:
                self._drop_lids(holder)
        self._drop_lids(node)
        if lids:
            self.world.set_lids([node.number], [port.lid], wanted[1])
            self._holders |= dict.fromkeys(lids, node)
        node.lids = wanted

    def _drop_lids(self, node: _Node) -> None:
        first, lmc = node.lids
        if first:
            self.world.take_lids([node.number])
            for lid in range(first, first + (1 << lmc)):
                self._holders.pop(lid, None)
        node.lids = (0, 0)

    def _wanted_ports(self, agent: NodeAgent) -> NDArray[np.uint8]:
        """Return the port of each LID, as far as data packets get: those to ACTIVE ports."""
        assert agent.forwarding is not None
        top = SwitchInfo.get(agent.switch_info, "linear_fdb_top")
        ports = np.frombuffer(agent.forwarding.linear_entries(), np.uint8)[: top + 1]
        passes = np.zeros(256, bool)
        passes[0] = True
        for number, port in agent.ports.items():
            passes[number] |= port.state == PortState.ACTIVE
        return np.where(passes[ports], ports, NO_PATH).astype(np.uint8)

    def _settle_switch(self, node: _Node) -> None:
        agent = node.agent
        wanted, had = self._wanted_ports(agent), node.ports
        most = max(len(wanted), len(had))
        if most > 1:
            new, old = (
                np.concatenate([each, np.full(most - len(each), NO_PATH, np.uint8)])
                for each in (wanted, had)
            )
            lids = np.flatnonzero(new[1:] != old[1:]) + 1
            if len(lids):
                entries = new[lids].astype(np.int64)
                entries[entries == NO_PATH] = -1
                self.world.set_lid_ports(node.number, lids, entries)
        node.ports = wanted
        self._settle_groups(node)
        self._settle_lanes(node)

    def _settle_groups(self, node: _Node) -> None:
        assert node.agent.forwarding is not None
        rows = node.agent.forwarding.multicast_rows()
        for block, position in rows.keys() | node.masks.keys():
            data = rows.get((block, position), bytes(64))
            if data != node.masks.get((block, position), bytes(64)):
                masks = np.frombuffer(data, ">u2").tolist()
                self.world.set_multicast_block(node.number, block, position, masks)
        node.masks = rows

    def _settle_lanes(self, node: _Node) -> None:
        """Set SL to VL tables, once a subnet manager has set one."""
        ports = node.agent.ports
        rows = [(number, port.sl_to_vl) for number, port in ports.items() if port.sl_to_vl]
        if not rows:
            return
        whole = b"".join(bytes(row) for _, row in rows)
        if whole == node.lanes:
            return
        node.lanes = whole
        count = len(self.fabric.tables().out_link[0])
        most, levels = self.world.lane_count(node.number), np.arange(16)
        lanes = np.zeros((count, count, 16), np.uint8)
        for output, row in rows:
            pairs = np.frombuffer(bytes(row), np.uint8).reshape(-1, 8)[:count]
            if output < count:
                lanes[: len(pairs), output, 0::2] = pairs >> 4
                lanes[: len(pairs), output, 1::2] = pairs & 15
        lanes = np.where(lanes < most, lanes, levels % max(most, 1)).astype(np.uint8)
        self.world.set_lanes(node.number, lanes)

    def link_row(self, port: NodePort) -> np.void:
        """Return the row of ``World.links`` of what a port sends."""
        if self._links_at != self.world.events:
            self._links_at, self._links = self.world.events, self.world.links()
        if not self._row:
            ends = zip(self._links["node"].tolist(), self._links["port"].tolist(), strict=True)
            self._row = {end: row for row, end in enumerate(ends)}
        row: np.void = self._links[self._row[self.place(port)]]
        return row


def _lane_code(lanes: int) -> VirtualLanes:
    """Return the code of as many lanes as agents can tell of: 1, 2, 4, 8 or 15."""
    return max(each for each in VirtualLanes if each and each.lanes <= max(lanes, 1))


def _offer(takers: list[Taker], packet: MadPacket) -> bool:
    return any(taker(packet) for taker in takers)
