# SPDX-License-Identifier: Apache-2.0
"""A heavy sweep: discovery, and then all settings that make a subnet work, in one fixed order.

``SubnetManager`` makes one for each sweep, and calls ``step`` after each response and timeout.
The phases follow each other as the table says; each begins when no request of the one before
waits any more. They have OpenSM's order, with one difference: limits and ARMED are one Set of a
port in place of two, since a port in INIT passes no data that the limits could concern.

    phase        requests
    -----------  ------------------------------------------------------------------------------
    DISCOVER     see ``discovery.py``
    MANAGERS     Get SMInfo of every port with IsSM
    DECIDE       none: the manager calls ``go_on`` if it is or becomes the master
    CLEAR        Set SwitchInfo, to clear PortStateChange
    PARTITIONS   Set P_KeyTable of end ports and of switches' ports that check, where it differs
    LIDS         Set PortInfo of end ports: LID, limits, ARMED; the SM's own port first
    SWITCHES     Set SwitchInfo: top of the tables, life of packets
    LINEAR       Set LinearForwardingTable, the blocks that differ
    MULTICAST    Set MulticastForwardingTable, the blocks that differ
    LANES        Set VLArbitrationTable and SLtoVLMappingTable, those that differ
    ARM          Set PortInfo of switches' ports: limits, ARMED
    ACTIVATE     Set PortInfo: ACTIVE
    DONE         none

A node that stops answering is left out of the phases behind; ``errors`` then says so, and the
manager sweeps again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Protocol

from verbena.fabrics import FabricError

from ..attribute_ids import SmpAttribute
from ..errors import MadError
from ..smp_attributes import SmInfo
from .discovered import DiscoveredSubnet, SubnetNode, SubnetPort
from .discovered_fabric import name_nodes
from .discovery import Discovery
from .lane_tables import LaneTableSet, lane_block_key, lane_table_sets
from .lid_assignment import assign_lids
from .multicast_routing import FIRST_MLID, MulticastRoutes
from .port_settings import (
    activated_port,
    cleared_switch,
    end_port_settings,
    switch_port_settings,
    switch_settings,
)
from .settings import SmSettings
from .smp_window import SmpRequest, SmpWindow
from .sweep_routing import SubnetRoutes, route_subnet

__all__ = ["GroupSource", "Sweep", "SweepPhase"]

_DATA = 64
_BLOCK = 64
_P_KEYS = 32


class SweepPhase(Enum):
    """What a sweep is doing, in this order."""

    DISCOVER = 0
    MANAGERS = 1
    DECIDE = 2
    CLEAR = 3
    PARTITIONS = 4
    LIDS = 5
    SWITCHES = 6
    LINEAR = 7
    MULTICAST = 8
    LANES = 9
    ARM = 10
    ACTIVATE = 11
    DONE = 12


class GroupSource(Protocol):
    """Who knows the multicast groups: the SA."""

    def members_by_mlid(self, subnet: DiscoveredSubnet) -> Mapping[int, Iterable[tuple[int, int]]]:
        """Return the members of each group, as node GUID and port, by MLID."""
        ...


class Sweep:
    """A heavy sweep. ``subnet`` and ``routes`` are what it found and made.

    ``known`` is the map from GUID to LID, which the sweep extends. ``previous`` is the subnet of
    the sweep before: what that has set, and no reset has undone, is not set again. ``managers`` are
    the other subnet managers, with the ports where they run.
    """

    def __init__(
        self,
        window: SmpWindow,
        settings: SmSettings,
        known: Mapping[int, int],
        previous: DiscoveredSubnet | None = None,
        *,
        groups: GroupSource | None = None,
        reregister: bool = False,
    ) -> None:
        self.settings, self.known, self.previous = settings, dict(known), previous
        self.phase = SweepPhase.DISCOVER
        self.subnet = DiscoveredSubnet()
        self.routes: SubnetRoutes | None = None
        self.multicast: MulticastRoutes | None = None
        self.managers: list[tuple[SubnetPort, SmInfo]] = []
        self.errors: list[str] = []
        self._window = window
        self._groups = groups
        self._reregister = reregister
        self._discovery = Discovery(window)
        self._begin: dict[SweepPhase, Callable[[], None]] = {
            SweepPhase.MANAGERS: self._ask_managers,
            SweepPhase.CLEAR: self._clear,
            SweepPhase.PARTITIONS: self._partition,
            SweepPhase.LIDS: self._assign,
            SweepPhase.SWITCHES: self._set_switches,
            SweepPhase.LINEAR: self._set_linear,
            SweepPhase.MULTICAST: self._set_multicast,
            SweepPhase.LANES: self._set_lanes,
            SweepPhase.ARM: self._arm,
            SweepPhase.ACTIVATE: self._activate,
        }

    def start(self) -> None:
        """Begin with the discovery."""
        self._discovery.start()

    @property
    def is_done(self) -> bool:
        """All phases are over."""
        return self.phase is SweepPhase.DONE

    def step(self) -> None:
        """Go on to the next phases, as long as nothing is asked that waits for a response."""
        while self._window.is_idle and self.phase not in (SweepPhase.DECIDE, SweepPhase.DONE):
            if self.phase is SweepPhase.DISCOVER:
                self.subnet = self._discovery.finish()
                if self.subnet.own_port is None:
                    self.errors.append("the own port does not answer")
                    self.errors += self.subnet.notes
                    self.phase = SweepPhase.DONE
                    return
                name_nodes(self.subnet, self.settings.node_names)
            self._next()

    def go_on(self) -> None:
        """Leave DECIDE: the manager is the master."""
        if self.phase is SweepPhase.DECIDE:
            self._next()
            self.step()

    def _next(self) -> None:
        self.phase = SweepPhase(self.phase.value + 1)
        begin = self._begin.get(self.phase)
        if begin is not None:
            begin()

    def failed(self, request: SmpRequest, reason: str) -> None:
        """Note a request that had no good response."""
        if self.phase is SweepPhase.DISCOVER:
            self._discovery.failed(request, reason)
            return
        if self.phase is SweepPhase.MANAGERS:
            return
        self.errors.append(f"{request.subject!r}: {request}: {reason}")
        node: SubnetNode = request.subject
        if reason == "no response" and not node.failed:
            node.failed = True
            self._window.drop(node)

    @property
    def _usable(self) -> list[SubnetNode]:
        return [node for node in self.subnet.nodes.values() if not node.failed]

    # ---- the phases --------------------------------------------------------------------------

    def _ask_managers(self) -> None:
        for port in self.subnet.end_ports:
            if port.is_sm and port is not self.subnet.own_port:
                self._window.get(port.route, SmpAttribute.SM_INFO, 0, self._manager, None, port)

    def _manager(self, request: SmpRequest, mad: bytes) -> None:
        self.managers.append((request.detail, SmInfo.unpack(mad, _DATA)))

    def _clear(self) -> None:
        for node in self._usable:
            self._recall(node)
        for node in self._usable:
            if node.is_switch and (data := cleared_switch(node)):
                self._set(node.ports[0], SmpAttribute.SWITCH_INFO, 0, data, self._switch_set)

    def _switch_set(self, request: SmpRequest, mad: bytes) -> None:
        request.subject.switch_info = mad[_DATA : _DATA + 20]

    def _partition(self) -> None:
        for port in self.subnet.end_ports:
            if port.node.failed or not port.p_keys:
                continue
            is_own = port is self.subnet.own_port
            keys = self.settings.partitions.p_keys_of(
                port.guid, is_sm=is_own, is_switch=port.node.is_switch
            )
            room = len(port.p_keys) * _P_KEYS
            if len(keys) > room:
                self.subnet.notes.append(f"{port!r} has room for {room} of {len(keys)} P_Keys")
            table = _p_key_blocks(keys[:room], port.p_keys)
            for block, data in table.items():
                if port.p_keys.get(block) != data:
                    self._set(port, SmpAttribute.P_KEY_TABLE, block, data, self._p_keys_set, block)
            self._partition_at_switch(port, keys[:room])

    def _partition_at_switch(self, port: SubnetPort, keys: list[int]) -> None:
        """Give a switch's port the P_Keys of the end port behind it, if it is to check them."""
        peer = port.peer
        if not self.settings.switches_check_p_keys or peer is None or not peer.node.is_switch:
            return
        if peer.node.failed or port.node.is_switch:
            return
        room = (peer.node.switch_info[14] << 8 | peer.node.switch_info[15]) // _P_KEYS * _P_KEYS
        if len(keys) > room:
            self.subnet.notes.append(f"{peer!r} has no room to check {len(keys)} P_Keys")
            return
        blocks = {block: peer.p_keys.get(block, bytes(64)) for block in range(room // _P_KEYS)}
        for block, data in _p_key_blocks(keys, blocks).items():
            if peer.p_keys.get(block, b"") != data:
                modifier = peer.number << 16 | block
                self._set(peer, SmpAttribute.P_KEY_TABLE, modifier, data, self._p_keys_set, block)

    def _p_keys_set(self, request: SmpRequest, mad: bytes) -> None:
        port, block = request.detail
        port.p_keys[block] = mad[_DATA : _DATA + 64]

    def _assign(self) -> None:
        try:
            self.known = assign_lids(self.subnet, self.settings, self.known)
        except MadError as error:
            self.errors.append(str(error))
            self.phase = SweepPhase.DONE
            return
        own = self.subnet.own_port
        assert own is not None
        ports = [own, *(port for port in self.subnet.end_ports if port is not own)]
        for port in ports:
            if port.node.failed or not port.info:
                continue
            data = end_port_settings(port, self.settings, own.lid, self._reregister)
            if data is not None:
                self._set(port, SmpAttribute.PORT_INFO, port.number, data, self._port_set)

    def _port_set(self, request: SmpRequest, mad: bytes) -> None:
        request.detail.info = mad[_DATA : _DATA + 64]

    def _set_switches(self) -> None:
        try:
            self.routes = route_subnet(self.subnet, self.settings)
        except (MadError, FabricError) as error:
            self.errors.append(str(error))
            return
        if self.routes is None:
            return
        self.subnet.notes += self.routes.notes
        self.multicast = MulticastRoutes(self.routes)
        top = max(port.lid + (1 << port.lmc) - 1 for port in self.subnet.end_ports)
        for node in self._usable:
            if not node.is_switch:
                continue
            if data := switch_settings(node, self.settings, top):
                self._set(node.ports[0], SmpAttribute.SWITCH_INFO, 0, data, self._switch_set)

    def _recall(self, node: SubnetNode) -> None:
        """Take over what the sweep before has set, unless the node has been reset since."""
        before = self.previous.nodes.get(node.guid) if self.previous else None
        if before is None or before.kind != node.kind or not self._has_kept(node, before):
            return
        node.lane_blocks = dict(before.lane_blocks)
        if node.is_switch:
            for number, port in node.ports.items():
                if number and number in before.ports:
                    port.p_keys = dict(before.ports[number].p_keys)
            node.linear = dict(before.linear)
            node.multicast = dict(before.multicast)

    @staticmethod
    def _has_kept(node: SubnetNode, before: SubnetNode) -> bool:
        """Whether a node still has the LID, and a switch the table's top, that it was given."""
        for number, port in before.ports.items():
            if port.is_end_port:
                now = node.ports[number].info if number in node.ports else b""
                if now[16:18] != port.info[16:18] or now[16:18] in (b"", b"\0\0"):
                    return False
        return before.switch_info[6:8] == node.switch_info[6:8]

    def _set_linear(self) -> None:
        if self.routes is None:
            return
        attribute, done = int(SmpAttribute.LINEAR_FORWARDING), self._linear_set
        for node in self._usable:
            if not node.is_switch or node.guid not in self.routes.rows:
                continue
            row, known = self.routes.row_bytes(node), node.linear
            for at in range(0, len(row), _BLOCK):
                data, block = row[at : at + _BLOCK], at // _BLOCK
                if known.get(block) != data:
                    self._window.set(node.route, attribute, block, data, done, node, block)
            # LIDs above the top are dropped by the switch, so blocks behind need no Set.

    def _linear_set(self, request: SmpRequest, mad: bytes) -> None:
        request.subject.linear[request.detail] = mad[_DATA : _DATA + _BLOCK]

    def _members(self) -> Mapping[int, Iterable[tuple[int, int]]]:
        if self._groups is None or self.routes is None:
            return {}
        members = self._groups.members_by_mlid(self.subnet)
        return {mlid: each for mlid, each in members.items() if mlid >= FIRST_MLID}

    def _set_multicast(self) -> None:
        if self.multicast is not None:
            tables = self.multicast.blocks(self._members())
            send_multicast(self._window, self.subnet, tables)

    def _set_lanes(self) -> None:
        if self.routes is None:
            return
        for table in lane_table_sets(self.subnet, self.routes, self.settings):
            self._set(
                table.port, table.attribute, table.modifier, table.data, self._lane_set, table
            )

    def _lane_set(self, request: SmpRequest, mad: bytes) -> None:
        table: LaneTableSet = request.detail[1]
        request.subject.lane_blocks[lane_block_key(table)] = table.data

    def _arm(self) -> None:
        attribute, done = int(SmpAttribute.PORT_INFO), self._port_set
        for node in self._usable:
            if not node.is_switch:
                continue
            for port in node.ports.values():
                if port.number and (data := switch_port_settings(port, self.settings)):
                    self._window.set(node.route, attribute, port.number, data, done, node, port)

    def _activate(self) -> None:
        attribute, done = int(SmpAttribute.PORT_INFO), self._port_set
        for node in self._usable:
            for port in node.ports.values():
                if port.info and (data := activated_port(port)):
                    self._window.set(port.route, attribute, port.number, data, done, node, port)

    def _set(
        self,
        port: SubnetPort,
        attribute: int,
        modifier: int,
        data: bytes,
        done: Callable[[SmpRequest, bytes], None],
        more: object = None,
    ) -> None:
        detail = port if more is None else (port, more)
        self._window.set(port.route, attribute, modifier, data, done, port.node, detail)


def _p_key_blocks(keys: list[int], present: Mapping[int, bytes]) -> Mapping[int, bytes]:
    """The blocks of a table: a key that is there keeps its place, since QPs have its index."""
    return _p_key_table(tuple(keys), tuple(present.items()))


@lru_cache(maxsize=64)  # most ports of a subnet have the same keys
def _p_key_table(
    keys: tuple[int, ...], blocks: tuple[tuple[int, bytes], ...]
) -> Mapping[int, bytes]:
    present = dict(blocks)
    entries = [0] * (len(present) * _P_KEYS)
    wanted = dict.fromkeys(keys)
    for block, data in present.items():
        for place in range(_P_KEYS):
            key = data[2 * place] << 8 | data[2 * place + 1]
            if key in wanted:
                entries[block * _P_KEYS + place] = key
                del wanted[key]
    free = (at for at, key in enumerate(entries) if not key)
    for key in wanted:
        entries[next(free)] = key
    raw = b"".join(key.to_bytes(2, "big") for key in entries)
    return {block: raw[64 * block : 64 * block + 64] for block in present}


def send_multicast(
    window: SmpWindow,
    subnet: DiscoveredSubnet,
    tables: Mapping[int, Mapping[tuple[int, int], bytes]],
) -> None:
    """Set the blocks of multicast tables, by switch GUID, that differ from what is known."""
    attribute = int(SmpAttribute.MULTICAST_FORWARDING)
    empty = bytes(_BLOCK)
    for node in subnet.nodes.values():
        if not node.is_switch or node.failed:
            continue
        wanted = tables.get(node.guid, {})
        for key in {**wanted, **node.multicast}:
            data = wanted.get(key, empty)
            if node.multicast.get(key, empty) != data:
                modifier = key[0] << 28 | key[1]
                window.set(node.route, attribute, modifier, data, _multicast_set, node, key)


def _multicast_set(request: SmpRequest, mad: bytes) -> None:
    request.subject.multicast[request.detail] = mad[_DATA : _DATA + _BLOCK]
