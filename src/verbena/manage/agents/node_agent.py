# SPDX-License-Identifier: Apache-2.0
"""The management agents of a node: a channel adapter, a switch or a router.

``Subnet`` has a ``NodeAgent`` for each of its nodes, and a simulated or live node may have one of
its own: then ``receive`` takes each management packet that comes to the node and returns those that
leave it. ``NodeSurroundings`` is what an agent asks of whoever has the node's links. There is no
clock: ``now`` is in seconds, from any start, and must not go back.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from ..codes import CapabilityMask, NodeType
from ..errors import MadError
from ..mad import MAD_BYTES
from ..notices import SystemImageGuidTrap, TrapNumber
from ..smp_attributes import NodeDescription, NodeInfo, PortInfo, SmInfo, SwitchInfo
from .device_profiles import ADAPTER, DeviceProfile
from .directed_routes import arrive_by_route, is_directed, leave_by_route, return_by_route
from .forwarding import SwitchTables
from .general_services import answer_gmp
from .node_ports import NodePort, check_port_count
from .packets import Drop, MadPacket, MadReceiver, PortEvent
from .sma import answer_smp
from .tallies import CounterSource
from .traps import TrapSender

__all__ = ["NodeAgent", "NodeSurroundings", "SmPort"]


class NodeSurroundings(Protocol):
    """What an agent tells and asks of those who have its links."""

    def link_commanded(self, port: NodePort, physical_state: int) -> None:
        """The subnet manager has taken the link down; it is to go to this PortPhysicalState.

        The port has counted that in LinkDowned; its peer has not yet.
        """
        ...

    def routing_changed(self) -> None:
        """Tables, LIDs or states of ports have changed, by which packets find their way."""
        ...

    def port_event(self, port: NodePort, event: PortEvent) -> None:
        """Something has happened to a port that its host's programs are told."""
        ...

    def traps_wait(self, node: NodeAgent) -> None:
        """The node has traps to send: ``NodeAgent.due_traps``."""
        ...

    def read_counters(self) -> None:
        """Counters are about to be read or written: those not yet counted are to be counted."""
        ...


class Alone:
    """Surroundings without links: nothing follows."""

    def link_commanded(self, port: NodePort, physical_state: int) -> None:
        """See ``NodeSurroundings``."""

    def routing_changed(self) -> None:
        """See ``NodeSurroundings``."""

    def port_event(self, port: NodePort, event: PortEvent) -> None:
        """See ``NodeSurroundings``."""

    def traps_wait(self, node: NodeAgent) -> None:
        """See ``NodeSurroundings``."""

    def read_counters(self) -> None:
        """See ``NodeSurroundings``."""


class SmPort(Protocol):
    """A subnet manager that runs at a port, as the port's agent sees it."""

    def sm_info(self) -> SmInfo:
        """Return the attribute for a Get."""
        ...

    def set_sm_info(self, control: int, info: SmInfo) -> SmInfo | None:
        """Carry out a Set and return the attribute, or None if it is not possible in this state.

        ``control`` is the modifier: 1 HANDOVER, 2 ACKNOWLEDGE, 3 DISABLE, 4 STANDBY, 5 DISCOVER.
        """
        ...


class NodeAgent:
    """A node: its ports, and the agents that answer for it. Raises MadError for odd numbers.

    ``ports`` is by number, and a switch has port 0. ``receivers`` get what no agent answers, by the
    number of the end port; ``managers`` are subnet managers by the same. ``drops`` counts packets
    that were lost here. ``forwarding`` has a switch's tables.
    """

    def __init__(
        self,
        name: str,
        *,
        ports: int = 1,
        guid: int = 0,
        profile: DeviceProfile = ADAPTER,
        system_image_guid: int | None = None,
        surroundings: NodeSurroundings | None = None,
    ) -> None:
        check_port_count(ports)
        self.name = name
        self.profile = profile
        self.surroundings: NodeSurroundings = surroundings or Alone()
        self.is_switch = profile.node_type == NodeType.SWITCH
        self.ports: dict[int, NodePort] = {}
        for number in range(0 if self.is_switch else 1, ports + 1):
            self.ports[number] = NodePort(self, number)
        self.receivers: dict[int, MadReceiver] = {}
        self.managers: dict[int, SmPort] = {}
        self.counter_source: CounterSource | None = None
        self.counter_bases: dict[tuple[int, int, str], int] = {}  # by port, attribute and name
        self.drops: Counter[Drop] = Counter()
        self.traps = TrapSender(self)
        self.description = bytearray(NodeDescription(name=_short(name)).pack())
        self.node_info = bytearray(
            NodeInfo(
                node_type=profile.node_type,
                num_ports=ports,
                partition_cap=profile.partition_cap,
                device_id=profile.device_id,
                revision=profile.revision,
                vendor_id=profile.vendor_id,
            ).pack()
        )
        self.switch_info = bytearray()
        self.forwarding: SwitchTables | None = None
        if self.is_switch:
            self._make_switch()
        self.set_guid(guid, system_image_guid)

    def _make_switch(self) -> None:
        profile = self.profile
        self.forwarding = SwitchTables(profile.linear_fdb_cap, profile.multicast_fdb_cap)
        self.switch_info = bytearray(
            SwitchInfo(
                linear_fdb_cap=profile.linear_fdb_cap,
                multicast_fdb_cap=profile.multicast_fdb_cap,
                partition_enforcement_cap=profile.partition_enforcement_cap,
                inbound_enforcement_cap=bool(profile.partition_enforcement_cap),
                outbound_enforcement_cap=bool(profile.partition_enforcement_cap),
                filter_raw_inbound_cap=True,
                filter_raw_outbound_cap=True,
                enhanced_port_0=profile.enhanced_port_0,
            ).pack()
        )

    def __repr__(self) -> str:
        return f"<NodeAgent {self.name}: {self.profile.node_type.name}, {self.num_ports} ports>"

    # ---- what it is ----------------------------------------------------------------------------

    @property
    def num_ports(self) -> int:
        """Physical ports; a switch does not count its port 0."""
        return self.node_info[3]

    @property
    def guid(self) -> int:
        """NodeGUID."""
        return int.from_bytes(self.node_info[12:20], "big")

    def set_guid(self, guid: int, system_image_guid: int | None = None) -> None:
        """Set NodeGUID, and the ports' GUIDs: a switch's is the node's, another's plus its number.

        Raises MadError if a number has more than 64 bits.
        """
        system = guid if system_image_guid is None else system_image_guid
        NodeInfo.put(self.node_info, 0, node_guid=guid, system_image_guid=system, port_guid=guid)
        for port in self.end_ports():
            self.set_port_guid(port.number, guid + port.number)

    def set_system_image_guid(self, guid: int) -> None:
        """Change SystemImageGUID; the subnet manager gets trap 145. Raises MadError."""
        NodeInfo.put(self.node_info, 0, system_image_guid=guid)
        for port in self.end_ports():
            detail = SystemImageGuidTrap(lid=port.lid, system_image_guid=guid)
            self.traps.notify(port, TrapNumber.SYSTEM_IMAGE_GUID, detail)

    def set_port_guid(self, number: int, guid: int) -> None:
        """Set the GUID of an end port. Raises MadError if there is none, or for a long number."""
        port = self.end_port(number)
        if not 0 <= guid < 1 << 64:
            raise MadError(f"{guid:#x} is no GUID of 64 bits")
        port.guids[:8] = guid.to_bytes(8, "big")
        if self.is_switch:
            NodeInfo.put(self.node_info, 0, port_guid=guid)

    def end_ports(self) -> list[NodePort]:
        """The ports with LIDs: port 0 of a switch, all of another node."""
        return [self.ports[0]] if self.is_switch else list(self.ports.values())

    def end_port(self, number: int) -> NodePort:
        """Return an end port: of a switch port 0 for any number. Raises MadError."""
        port = self.ports.get(0 if self.is_switch else number)
        if port is None:
            raise MadError(f"{self.name} has no port {number}")
        return port

    def set_is_sm(self, number: int, manager: SmPort | None, *, is_sm: bool | None = None) -> None:
        """Let a subnet manager run at an end port, or no longer (None); IsSM tells others.

        With ``is_sm`` and no manager SMInfo goes to the port's receiver. Raises MadError.
        """
        port = self.end_port(number)
        self.managers.pop(port.number, None)
        if manager is not None:
            self.managers[port.number] = manager
        mask = PortInfo.get(port.info, "capability_mask")
        wanted = is_sm if is_sm is not None else manager is not None
        new = mask | CapabilityMask.IS_SM if wanted else mask & ~CapabilityMask.IS_SM
        self.set_capabilities(port.number, new)

    def set_capabilities(self, number: int, mask: int) -> None:
        """Change CapabilityMask of an end port; the subnet manager gets trap 144."""
        port = self.end_port(number)
        if mask != PortInfo.get(port.info, "capability_mask"):
            PortInfo.put(port.info, 0, capability_mask=CapabilityMask(mask))
            self.traps.local_changes(port)
            self.surroundings.port_event(port, PortEvent.CAPABILITIES)

    def set_description(self, name: str, *, local: bool = True) -> None:
        """Change NodeDescription. ``local``: the subnet manager gets trap 144 for it.

        Raises MadError for more than 64 bytes.
        """
        self.description[:] = NodeDescription(name=name).pack()
        if local:
            for port in self.end_ports():
                self.traps.local_changes(port, node_description_changed=True)

    # ---- packets -------------------------------------------------------------------------------

    def drop(self, reason: Drop) -> None:
        """Count a lost packet."""
        self.drops[reason] += 1

    def receive(self, packet: MadPacket, now: float) -> list[MadPacket]:
        """Take a packet that came by ``packet.port`` and return those that leave the node.

        A directed-route SMP goes on by its route, if it is not for this node. Another packet is
        taken as one for this node: its LIDs are not looked at.
        """
        if not _is_mad(packet.mad):
            self.drop(Drop.NO_MAD)
            return []
        if not is_directed(packet.mad) or packet.qp:
            return self.deliver(packet, now)
        moved = arrive_by_route(packet.mad, packet.port, switch=self.is_switch)
        if moved is None:
            self.drop(Drop.ROUTE_INVALID)
            return []
        onward, mad = moved
        if onward == 0:
            return self._returned(self.deliver(packet._replace(mad=mad), now))
        port = self.ports.get(onward)
        if port is None or not port.is_up:
            self.drop(Drop.ROUTE_INVALID if port is None else Drop.LINK_DOWN)
            return []
        return [packet._replace(mad=mad, port=onward)]

    def send(self, packet: MadPacket, now: float) -> list[MadPacket]:
        """Return what leaves the node when a program of it sends a packet from an end port.

        ``packet.port`` is the end port. A directed-route SMP without a hop is answered here.
        """
        if not _is_mad(packet.mad):
            self.drop(Drop.NO_MAD)
            return []
        if not is_directed(packet.mad):
            return [packet]
        response = packet.mad[4] & 0x80
        moved = return_by_route(packet.mad) if response else leave_by_route(packet.mad)
        if moved is None:
            self.drop(Drop.ROUTE_INVALID)
            return []
        port, mad = moved
        if port == 0:
            return self._returned(self.deliver(packet._replace(mad=mad), now))
        return [packet._replace(mad=mad, port=port)]

    def _returned(self, packets: list[MadPacket]) -> list[MadPacket]:
        """Send the responses of this node on their ways back."""
        sent = []
        for packet in packets:
            if not is_directed(packet.mad):
                sent.append(packet)
                continue
            moved = return_by_route(packet.mad)
            if moved is None:
                self.drop(Drop.ROUTE_INVALID)
            elif moved[0] == 0:
                self.hand_over(packet)
            else:
                sent.append(packet._replace(mad=moved[1], port=moved[0]))
        return sent

    def deliver(self, packet: MadPacket, now: float) -> list[MadPacket]:
        """Let the node's agents take a packet for this node, and return their answers.

        What no agent answers goes to the port's receiver. An answer to a directed-route SMP has the
        hop pointer of the request: ``return_by_route`` moves it.
        """
        if packet.qp:
            answered = answer_gmp(self, packet, now)
            return [] if answered is None else [packet.answer(answered)]
        smp = answer_smp(self, packet.mad, packet.port, now, packet.slid)
        if isinstance(smp, Drop):
            self.drop(smp)
        elif smp is None:
            self.hand_over(packet)
        elif smp:
            return [packet.answer(bytes(smp))]
        return []

    def offer(self, packet: MadPacket) -> bool:
        """Offer a packet to the receiver of its end port. Returns whether it takes it."""
        receiver = self.receivers.get(0 if self.is_switch else packet.port)
        return receiver is not None and receiver(packet) is not False

    def hand_over(self, packet: MadPacket) -> None:
        """Offer a packet to the receiver of its end port, and count it if it is not taken."""
        if not self.offer(packet):
            self.drop(Drop.NO_RECEIVER)


def _short(name: str) -> str:
    """The name, cut to the 64 bytes that NodeDescription has."""
    return name.encode()[:64].decode(errors="ignore")


def _is_mad(mad: bytes) -> bool:
    return len(mad) == MAD_BYTES and mad[0] == 1
