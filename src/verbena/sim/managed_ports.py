# SPDX-License-Identifier: Apache-2.0
"""What a subnet manager has set at the ports of a managed fabric, handed to the World as tables.

``ManagedWorld`` calls ``ManagedPorts.settle`` when an agent has changed. A port's PortState and its
P_Keys become a gate of the World (``World.guard``), its VL arbitration and a host's SL to VL map
those of its lanes. What gates keep back is counted and reported here as IBA says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from verbena.manage.agents import Drop, MadPacket, NodeAgent, NodePort
from verbena.manage.agents.lid_routes import walk
from verbena.manage.agents.port_states import data_arrived
from verbena.manage.agents.violations import key_violated, p_key_violated_at_switch
from verbena.manage.attribute_ids import Method, MgmtClass, SmpAttribute
from verbena.manage.codes import PortState
from verbena.manage.smp_attributes import PortInfo

if TYPE_CHECKING:
    from verbena.sim.doors import Mad
    from verbena.sim.managed import ManagedWorld

__all__ = ["ManagedPorts"]

SMPS = (int(MgmtClass.SUBN_LID_ROUTED), int(MgmtClass.SUBN_DIRECTED_ROUTE))
TOLD_EVERY = 10**9  # ps between two refused packets of which a port tells
MOST_VIOLATIONS = 0xFFFF
ARBITRATION_TABLE = 128  # bytes: two blocks, of which those of the low table come first
REFUSED_LATER = (None, Drop.P_KEY, Drop.P_KEY_AT_SWITCH)


@lru_cache(maxsize=256)
def passing(p_keys: bytes, both_limited: bool) -> bytes:
    """Return a bit for each P_Key, set if a table of P_Keys lets a packet with it pass.

    ``both_limited``: it also passes if the packet and the table have limited membership, as at a
    switch (``NodePort.in_partition``); an end port refuses it (``NodePort.find_p_key``).
    """
    bits = np.zeros(1 << 16, bool)
    for key in np.frombuffer(p_keys, ">u2").tolist():
        if key & 0x7FFF:
            bits[key | 0x8000] = True
            bits[key & 0x7FFF] |= both_limited or key >= 0x8000
    return np.packbits(bits, bitorder="little").tobytes()


class ManagedPorts:
    """The ports of a ``ManagedWorld``. Both belong to one thread."""

    def __init__(self, managed: ManagedWorld) -> None:
        self._managed, self._world = managed, managed.world
        self._gates: dict[NodePort, tuple[bool, bool, bytes | None, bytes | None, bool]] = {}
        self._lanes: dict[NodePort, int] = {}  # lanes of the port's link
        self._maps: dict[NodePort, bytes] = {}
        self._arbitrated: dict[NodePort, bytes] = {}
        self._refusing: dict[NodeAgent, dict[NodePort, int]] = {}  # what was counted already
        self._world.on_refused(self._refused)

    def _linked(self, agent: NodeAgent) -> Iterator[NodePort]:
        for port in agent.ports.values():
            if port.number and port.peer is not None:
                yield port

    def settle(self, agent: NodeAgent) -> None:
        """Give the World what has changed at the ports of a node."""
        for port in self._linked(agent):
            self._settle_gate(port)
            if port.is_end and port.sl_to_vl is not None:
                self._settle_map(port)

    def _settle_gate(self, port: NodePort) -> None:
        state = port.state
        takes, sends = state in (PortState.ARMED, PortState.ACTIVE), state == PortState.ACTIVE
        came = left = None
        if port.is_end:
            came = passing(bytes(port.p_keys), False)
        elif port.info[43] & 0x0C:
            keys = passing(bytes(port.p_keys), True)
            came = keys if PortInfo.get(port.info, "partition_enforcement_inbound") else None
            left = keys if PortInfo.get(port.info, "partition_enforcement_outbound") else None
        wanted = takes, sends, came, left, takes and not sends
        if wanted == self._gates.get(port, (True, True, None, None, False)):
            return
        self._gates[port] = wanted
        self._world.guard(
            *self._managed.place(port),
            takes=takes,
            sends=sends,
            keys_in=came,
            keys_out=left,
            interval=TOLD_EVERY,
            wakes=takes and not sends,
        )

    # ---- lanes ---------------------------------------------------------------------------------

    def _lane_count(self, port: NodePort) -> int:
        """Return the lanes of a port's link, which are those of a switch at it; 0: it has none."""
        if port not in self._lanes:
            switches = [each for each in (port, port.peer) if each and each.node.is_switch]
            node = self._managed.place(switches[0])[0] if switches else None
            self._lanes[port] = 0 if node is None else self._world.lane_count(node)
        return self._lanes[port]

    def _settle_map(self, port: NodePort) -> None:
        count, row = self._lane_count(port), bytes(port.lane_map()[:8])
        if not count or self._maps.get(port) == row:
            return
        self._maps[port] = row
        lanes = [port.lane_of(level) for level in range(16)]
        lanes = [lane if lane < count else level % count for level, lane in enumerate(lanes)]
        self._world.set_host_lanes(self._managed.place(port)[0], lanes)

    def note_set(self, agent: NodeAgent, mad: bytes) -> None:
        """Look at an SMP that an agent has answered: it may have set the arbitration of lanes."""
        if mad[1] not in SMPS or mad[3] != Method.SET:
            return
        attribute, modifier = int.from_bytes(mad[16:18], "big"), int.from_bytes(mad[20:24], "big")
        if attribute == SmpAttribute.VL_ARBITRATION:
            which = agent.ports.get(modifier & 0xFFFF)
            ports = [which] if which and agent.is_switch else self._linked(agent)
            for port in ports:
                self._arbitrated.setdefault(port, b"")
        for port in self._linked(agent):
            if port in self._arbitrated:
                self._settle_arbitration(port)

    def _settle_arbitration(self, port: NodePort) -> None:
        blocks, limit = bytes(port.arbitration()), int(PortInfo.get(port.info, "vl_high_limit"))
        count, wanted = self._lane_count(port), blocks + bytes([limit])
        if not count or self._arbitrated[port] == wanted:
            return
        self._arbitrated[port] = wanted
        low, high = (
            [
                (blocks[at] & 15, blocks[at + 1])
                for at in range(first, first + ARBITRATION_TABLE, 2)
                if blocks[at + 1] and blocks[at] & 15 < count
            ]
            for first in (0, ARBITRATION_TABLE)
        )
        self._world.arbitrate(*self._managed.place(port), high, low, limit)

    # ---- what gates keep back ------------------------------------------------------------------

    def _kept_back(self, port: NodePort) -> tuple[int, int, int, int]:
        if port not in self._gates:
            return 0, 0, 0, 0
        return self._world.kept_back(*self._managed.place(port))

    def refused(self) -> tuple[int, int]:
        """Return how many packets ports have refused for their P_Keys, and at how many ports."""
        found = [sum(self._kept_back(port)[:2]) for port in self._gates]
        return sum(found), sum(map(bool, found))

    def totals(self, port: NodePort) -> Mapping[str, int]:
        """Return what a port has dropped, by the names of ``PortTally``."""
        came, left, _, shut = self._kept_back(port)
        found = {"xmit_discards": shut, "inactive_discards": shut}
        if not port.is_end:
            found |= {"rcv_constraint_errors": came, "xmit_constraint_errors": left}
        return {name: value for name, value in found.items() if value}

    def count_violations(self, agent: NodeAgent) -> None:
        """Bring PortInfo's counters of P_Key violations up to date."""
        for port, counted in self._refusing.get(agent, {}).items():
            total = sum(self._kept_back(port)[:2])
            seen = PortInfo.get(port.info, "p_key_violations") + total - counted
            PortInfo.put(port.info, 0, p_key_violations=min(seen, MOST_VIOLATIONS))
            self._refusing[agent][port] = total

    def _refused(self, node: int, number: int, packet: Mad | None) -> None:
        """Report a packet that a port has refused: trap 257 of an end port, 259 of a switch.

        None: it has taken one while it was ARMED, which makes it ACTIVE.
        """
        port = self._managed.port_at(node, number)
        if packet is None:
            data_arrived(port)
            self._managed.settle()
            return
        ports = self._refusing.setdefault(port.node, {})
        ports[port] = ports.get(port, 0) + 1  # the traps' functions count this one
        told = MadPacket(
            b"",
            port.number,
            packet.dlid,
            packet.slid,
            packet.qp,
            packet.source_qp,
            packet.sl,
            packet.pkey,
        )
        if port.is_end:
            key_violated(port, told, Drop.P_KEY)
        else:
            p_key_violated_at_switch(port, told)

    def leads(self, one: NodePort, other: NodePort) -> bool:
        """Whether two end ports are ACTIVE, and the tables lead from each to the other."""
        if one.state != PortState.ACTIVE or other.state != PortState.ACTIVE:
            return False
        ways = walk(one, other.lid), walk(other, one.lid)
        return all(way.problem in REFUSED_LATER for way in ways)
