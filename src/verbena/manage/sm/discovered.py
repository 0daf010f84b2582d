# SPDX-License-Identifier: Apache-2.0
"""What a subnet manager knows of its subnet: nodes, ports, links, and what is wrong with them.

Discovery fills a ``DiscoveredSubnet``, sweeps note in it what they have set, and the SA answers
from it. Attributes are kept as the bytes that the nodes gave; ``SubnetPort.port_info`` and the like
return them as records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..codes import NodeType, guid_text
from ..smp_attributes import NodeInfo, PortInfo, SwitchInfo
from .smp_window import SmpRoute

__all__ = ["DiscoveredSubnet", "DuplicateGuid", "SubnetNode", "SubnetPort"]

_CA, _SWITCH = int(NodeType.CA), int(NodeType.SWITCH)
_IS_SM = 1 << 1


class SubnetPort:
    """A port: of a CA or router, or one of a switch from port 0 on.

    ``guid`` is 0 for a switch's external port. ``info`` is PortInfo's bytes; empty if the node has
    not given it. ``peer`` is the port at the other end of the link. ``lid`` and ``lmc`` are what
    the sweep has chosen, of an end port or of a switch's port 0.
    """

    __slots__ = ("guid", "info", "lid", "lmc", "node", "number", "p_keys", "peer", "route")

    def __init__(self, node: SubnetNode, number: int, guid: int, route: SmpRoute) -> None:
        self.node, self.number, self.guid, self.route = node, number, guid, route
        self.info = b""
        self.p_keys: dict[int, bytes] = {}
        self.peer: SubnetPort | None = None
        self.lid = self.lmc = 0

    @property
    def port_info(self) -> PortInfo:
        """PortInfo; a record of zeros if the node has not given it."""
        return PortInfo.unpack(self.info) if self.info else PortInfo()

    @property
    def state(self) -> int:
        """PortInfo:PortState as a number; 0 if it is not known."""
        return self.info[32] & 15 if self.info else 0

    @property
    def is_sm(self) -> bool:
        """A subnet manager runs at the port: IsSM in its CapabilityMask."""
        return bool(self.info) and bool(self.info[23] & _IS_SM)

    @property
    def is_end_port(self) -> bool:
        """It has a LID: a port of a CA or router, or a switch's port 0."""
        return not self.node.is_switch or not self.number

    @property
    def lids(self) -> range:
        """The LIDs of an end port that the sweep has chosen."""
        return range(self.lid, self.lid + (1 << self.lmc)) if self.lid else range(0)

    @property
    def all_p_keys(self) -> list[int]:
        """The P_Keys of the port's table, without empty entries."""
        found = []
        for _, block in sorted(self.p_keys.items()):
            for at in range(0, len(block), 2):
                if key := block[at] << 8 | block[at + 1]:
                    found.append(key)
        return found

    def __repr__(self) -> str:
        return f"<{self.node.name or guid_text(self.node.guid)} port {self.number}>"


class SubnetNode:
    """A node. ``route`` is the first that was found to it; ports of a CA have their own.

    ``came_by`` is the port of a switch by which it was found; 0 is the own one and any other node.
    ``linear`` is the forwarding table that a switch has, as far as it is known, in blocks of 64
    bytes, and ``multicast`` likewise by position and block. ``failed`` says that it stopped
    answering.
    """

    __slots__ = (
        *(
            "came_by",
            "description",
            "failed",
            "guid",
            "info",
            "is_switch",
            "kind",
            "lane_blocks",
            "linear",
        ),
        *("multicast", "name", "ports", "route", "switch_info"),
    )

    def __init__(self, guid: int, info: bytes, route: SmpRoute) -> None:
        self.guid, self.info, self.route = guid, info, route
        self.kind = info[2]
        self.is_switch = self.kind == _SWITCH
        self.came_by = 0
        self.description = self.name = ""
        self.ports: dict[int, SubnetPort] = {}
        self.switch_info = b""
        self.linear: dict[int, bytes] = {}
        self.multicast: dict[tuple[int, int], bytes] = {}
        self.lane_blocks: dict[tuple[int, int, int], bytes] = {}
        self.failed = False

    @property
    def node_info(self) -> NodeInfo:
        """NodeInfo as the node gave it, by the first port that was found."""
        return NodeInfo.unpack(self.info)

    @property
    def switch(self) -> SwitchInfo:
        """SwitchInfo; a record of zeros if it is not known."""
        return SwitchInfo.unpack(self.switch_info) if self.switch_info else SwitchInfo()

    @property
    def is_ca(self) -> bool:
        """It is a channel adapter, and no router."""
        return self.kind == _CA

    @property
    def end_ports(self) -> list[SubnetPort]:
        """The ports that have LIDs, by number."""
        if self.is_switch:
            return [self.ports[0]] if 0 in self.ports else []
        return [self.ports[number] for number in sorted(self.ports)]

    @property
    def lid(self) -> int:
        """The first LID of a switch; 0 for another node."""
        return self.ports[0].lid if self.is_switch and 0 in self.ports else 0

    def __repr__(self) -> str:
        return f"<{self.name or guid_text(self.guid)}>"


@dataclass(frozen=True)
class DuplicateGuid:
    """Two nodes, or two cables of one port, that have one GUID and port.

    ``first`` and ``second`` are the directed routes by which they were found.
    """

    guid: int
    port: int
    first: tuple[int, ...]
    second: tuple[int, ...]

    def __str__(self) -> str:
        first, second = (",".join(map(str, (0, *path))) for path in (self.first, self.second))
        return (
            f"GUID {guid_text(self.guid)} port {self.port} is at the end of two routes: {first} and"
            f" {second}"
        )


@dataclass
class DiscoveredSubnet:
    """All nodes that a discovery found, by GUID, in the order in which they were found.

    ``own_port`` is where the subnet manager is. ``silent`` are ports with a link behind which
    nothing answers, ``loops`` links from a switch to itself, ``failed`` nodes that stopped
    answering during discovery. With any of them, or with ``duplicates``, the subnet is not
    ``complete``.
    """

    nodes: dict[int, SubnetNode] = field(default_factory=dict)
    own_port: SubnetPort | None = None
    silent: list[SubnetPort] = field(default_factory=list)
    loops: list[tuple[SubnetPort, SubnetPort]] = field(default_factory=list)
    failed: list[SubnetNode] = field(default_factory=list)
    duplicates: list[DuplicateGuid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Everything that has a link has answered."""
        return not (self.silent or self.failed or self.duplicates)

    @property
    def switches(self) -> list[SubnetNode]:
        """The switches."""
        return [node for node in self.nodes.values() if node.is_switch]

    @property
    def end_ports(self) -> Iterator[SubnetPort]:
        """Every port that has a LID: those of CAs and routers, and ports 0 of switches."""
        for node in self.nodes.values():
            yield from node.end_ports

    def by_port_guid(self) -> dict[int, SubnetPort]:
        """Return the end ports by their GUID."""
        return {port.guid: port for port in self.end_ports}

    def by_lid(self) -> dict[int, SubnetPort]:
        """Return the end ports by each of their LIDs."""
        return {lid: port for port in self.end_ports for lid in port.lids}

    def links(self) -> Iterator[tuple[SubnetPort, SubnetPort]]:
        """Every link once, from the end that was found first."""
        seen = set[int]()
        for node in self.nodes.values():
            seen.add(node.guid)
            for port in node.ports.values():
                peer = port.peer
                if peer is not None and (peer.node.guid not in seen or peer.node is node):
                    yield port, peer

    def remove(self, node: SubnetNode) -> None:
        """Remove a node and its links."""
        del self.nodes[node.guid]
        for port in node.ports.values():
            if port.peer is not None:
                port.peer.peer = None
                port.peer = None

    def remove_unreachable(self) -> list[SubnetNode]:
        """Remove the nodes to which no links lead from the own port, and return them."""
        if self.own_port is None:
            return []
        reached, todo = {self.own_port.node.guid}, [self.own_port.node]
        while todo:
            node = todo.pop()
            for port in node.ports.values():
                passes = node.is_switch or node is self.own_port.node
                if passes and port.peer is not None and port.peer.node.guid not in reached:
                    reached.add(port.peer.node.guid)
                    todo.append(port.peer.node)
        gone = [node for node in self.nodes.values() if node.guid not in reached]
        for node in gone:
            self.remove(node)
        return gone
