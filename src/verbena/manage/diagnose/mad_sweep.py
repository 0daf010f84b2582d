# SPDX-License-Identifier: Apache-2.0
"""Sweeps a fabric by management packets: discovery, forwarding tables, and counters of all ports.

``sweep_fabric`` asks an ``AskFabric``, which is a ``Subnet`` in memory (``SubnetAsker``) or a umad
device (``umad_asker``), and makes a ``FabricSnapshot``. It reads only: nothing is set. LID-routed
requests need a subnet that a subnet manager has brought up; without it there are no counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..agents.link_speeds import LinkSettings
from ..attribute_ids import Method, SmpAttribute
from ..codes import PortState
from ..mad import DirectedSmp, PerformanceMad
from ..pma_counters import (
    PortCounters,
    PortCountersExtended,
    PortExtendedSpeedsCounters,
)
from ..sm.discovered import DiscoveredSubnet, DuplicateGuid, SubnetNode, SubnetPort
from ..sm.discovered_fabric import name_nodes
from ..sm.discovery import Discovery
from ..sm.smp_window import SmpRequest, SmpWindow
from ..smp_attributes import PortInfo, SlToVlTable, SwitchInfo
from .fabric_snapshot import FabricSnapshot, PortKey, PortView

if TYPE_CHECKING:
    from ..agents.subnet import Subnet

__all__ = ["AskFabric", "SubnetAsker", "sweep_fabric"]

AT_ONCE = 64
NEVER = 1e18
LFT_BLOCK = 64
ERRORS = tuple(
    name
    for name in PortCounters.SELECTS
    if name not in ("xmit_data", "rcv_data", "xmit_packets", "rcv_packets", "xmit_wait")
)
DATA = ("xmit_data", "rcv_data", "xmit_packets", "rcv_packets")
FULL = {name: (1 << PortCounters.FIELDS[name].width) - 1 for name in (*ERRORS, "xmit_wait")}
FULL_DATA = (1 << 32) - 1
FDR_GBPS = 14.0  # of a lane; slower links have no forward error correction
Asked = tuple[bytes, int | None]
CounterKind = type[PortCounters] | type[PortCountersExtended] | type[PortExtendedSpeedsCounters]


class AskFabric(Protocol):
    """Sends requests into a fabric.

    ``ask_all`` takes MADs of 256 bytes, each with the LID to which it goes, or None for a
    directed-route SMP, and returns the responses in the same order; None where none came.
    """

    def ask_all(self, requests: Sequence[Asked]) -> list[bytes | None]:
        """Send all requests, repeat them as is usual, and return their responses."""
        ...


class SubnetAsker:
    """Asks a ``Subnet`` in memory from one of its hosts."""

    def __init__(self, subnet: Subnet, host: str) -> None:
        self._subnet, self._host = subnet, host

    def ask_all(self, requests: Sequence[Asked]) -> list[bytes | None]:
        """See ``AskFabric``."""
        found: list[bytes | None] = []
        for raw, lid in requests:
            if lid is None:
                smp = self._subnet.ask(self._host, DirectedSmp.unpack(raw))
                found.append(None if smp is None else smp.pack())
            else:
                mad = self._subnet.ask(self._host, PerformanceMad.unpack(raw), dlid=lid)
                found.append(None if mad is None else mad.pack())
        return found


def sweep_fabric(asker: AskFabric, now: float | None = None) -> FabricSnapshot:
    """Return what there is in the fabric at this time (seconds on any clock)."""
    window = SmpWindow(
        AT_ONCE, 1.0, 0, 0, lambda request, reason: discovery.failed(request, reason)
    )
    discovery = Discovery(window)
    discovery.start()
    _run(asker, window)
    found = discovery.finish()
    name_nodes(found, _names_by_guid(found))
    snapshot = FabricSnapshot(now, asks_all=True)
    for node in found.nodes.values():
        _note_node(snapshot, node)
    if found.own_port is None:
        snapshot.can_judge = False
        snapshot.lacks.append("The port that asks has not answered.")
    elif found.own_port.number:
        snapshot.asker = _key(found.own_port)
    for one, other in found.links():
        snapshot.connect(_key(one), _key(other))
    snapshot.silent += [_key(port) for port in found.silent if port.node.guid in found.nodes]
    for duplicate in found.duplicates:
        ports = tuple(key for key in _behind(found, duplicate) if key is not None)
        snapshot.duplicates.append((str(duplicate), ports))
    _read_tables(asker, found, snapshot)
    _read_counters(asker, found, snapshot)
    return snapshot


def _names_by_guid(found: DiscoveredSubnet) -> dict[int, str]:
    """Names of nodes whose description others have, too: as ``fabrics.ibnetdiscover`` names them.

    So a node has one name in every sweep, whichever is found first.
    """
    taken = Counter(node.description.strip() for node in found.nodes.values())
    return {
        guid: f"{'S' if node.is_switch else 'H'}-{guid:016x}"
        for guid, node in found.nodes.items()
        if taken[node.description.strip()] > 1
    }


def _run(asker: AskFabric, window: SmpWindow) -> None:
    while not window.is_idle:
        sent = window.pump(0.0)
        for answer in asker.ask_all([(raw, None) for raw in sent]):
            if answer is not None:
                window.receive(answer)
        window.tick(NEVER)  # what had no answer by now gets none


def _key(port: SubnetPort) -> PortKey:
    return PortKey(port.node.name, port.number)


def _behind(found: DiscoveredSubnet, duplicate: DuplicateGuid) -> list[PortKey | None]:
    """The switches' ports behind which the two nodes of one GUID are."""
    return [_last_port(found, path) for path in (duplicate.first, duplicate.second)]


def _last_port(found: DiscoveredSubnet, path: tuple[int, ...]) -> PortKey | None:
    here = found.own_port.node if found.own_port else None
    key = None
    for number in path:
        port = here.ports.get(number) if here else None
        if port is None or here is None:
            return key
        key = _key(port)
        here = port.peer.node if port.peer else None
    return key


def _note_node(snapshot: FabricSnapshot, node: SubnetNode) -> None:
    view = snapshot.add_node(node.name, is_switch=node.is_switch, guid=node.guid)
    for number, port in node.ports.items():
        if not port.info:
            continue
        info = port.port_info
        if port.is_end_port and info.lid:
            view.lids[number] = range(info.lid, info.lid + (1 << info.lmc))
        snapshot.ports[_key(port)] = _port_view(port, info)


def _port_view(port: SubnetPort, info: PortInfo) -> PortView:
    supported = LinkSettings(
        int(info.link_width_supported),
        int(info.link_speed_supported),
        int(info.link_speed_ext_supported),
        int(info.link_speed_ext_supported2),
    )
    extended = int(info.link_speed_ext_enabled)
    enabled = supported & LinkSettings(
        int(info.link_width_enabled),
        int(info.link_speed_enabled),
        0 if extended == 30 else extended,  # 30: none
        int(info.link_speed_ext_enabled2),
    )
    active = LinkSettings(
        int(info.link_width_active),
        int(info.link_speed_active),
        int(info.link_speed_ext_active),
        int(info.link_speed_ext_active2),
    )
    up = port.number and int(info.port_state) > 1
    return PortView(
        state=int(info.port_state),
        physical=int(info.port_physical_state),
        active=active.rate if up else None,
        enabled=enabled.rate,
        supported=supported.rate,
        mtu=info.neighbor_mtu.payload if up else None,
        mtu_cap=info.mtu_cap.payload if port.number else None,
        lanes=info.operational_vls.lanes if up else None,
        lanes_cap=info.vl_cap.lanes if port.number else None,
        p_keys=frozenset(port.all_p_keys) if port.is_end_port and port.p_keys else None,
        diag_code=info.diag_code,
    )


def _read_tables(asker: AskFabric, found: DiscoveredSubnet, snapshot: FabricSnapshot) -> None:
    """Read linear forwarding tables, and SLtoVL of every port of a host with a link."""
    window = SmpWindow(AT_ONCE, 1.0, 0, 0, lambda request, reason: None)

    def block(request: SmpRequest, mad: bytes) -> None:
        node, number = request.subject, request.detail
        node.linear[number] = mad[64:128]

    def lanes(request: SmpRequest, mad: bytes) -> None:
        snapshot.ports[_key(request.subject)].lane_of_sl = SlToVlTable.unpack(mad, 64).vls

    for node in found.nodes.values():
        if node.is_switch and node.switch_info:
            top = SwitchInfo.get(node.switch_info, "linear_fdb_top")
            for number in range(top // LFT_BLOCK + 1):
                window.get(
                    node.route, int(SmpAttribute.LINEAR_FORWARDING), number, block, node, number
                )
        elif not node.is_switch:
            for port in node.ports.values():
                if port.peer is not None:
                    window.get(port.route, int(SmpAttribute.SL_TO_VL), 0, lanes, port)
    _run(asker, window)
    for node in found.nodes.values():
        if node.linear:
            top = SwitchInfo.get(node.switch_info, "linear_fdb_top")
            blocks = (node.linear.get(number, b"\xff" * 64) for number in range(top // 64 + 1))
            snapshot.nodes[node.name].table = b"".join(blocks)[: top + 1]


def _read_counters(asker: AskFabric, found: DiscoveredSubnet, snapshot: FabricSnapshot) -> None:
    """Read the counters of every port with a link, and how often a port without one lost it."""
    reached = [
        port
        for node in found.nodes.values()
        for port in node.ports.values()
        if port.number and port.info and _lid_for(node, port)
    ]
    ports = [port for port in reached if port.peer is not None]
    _read_kind(asker, PortCounters, [p for p in reached if p.state == PortState.DOWN], snapshot)
    for kind in (PortCounters, PortCountersExtended):
        _read_kind(asker, kind, ports, snapshot)
    # Whether a node has counters of forward error correction is asked at one of its ports.
    fast = [port for port in ports if _is_fast(snapshot.ports[_key(port)])]
    first = {port.node.guid: port for port in reversed(fast)}
    have = _read_kind(asker, PortExtendedSpeedsCounters, list(first.values()), snapshot)
    nodes = {port.node.guid for port in have}
    others = [port for port in fast if port.node.guid in nodes and port not in have]
    _read_kind(asker, PortExtendedSpeedsCounters, others, snapshot)


def _is_fast(view: PortView) -> bool:
    return view.active is not None and view.active.gbps / view.active.lanes >= FDR_GBPS


def _read_kind(
    asker: AskFabric, kind: CounterKind, ports: list[SubnetPort], snapshot: FabricSnapshot
) -> list[SubnetPort]:
    """Read one attribute of ports; return those that have it."""
    requests: list[Asked] = [
        (_counter_request(kind, port.number, number), _lid_for(port.node, port))
        for number, port in enumerate(ports, 1)
    ]
    have = []
    for port, answer in zip(ports, asker.ask_all(requests), strict=True):
        if answer is not None and not answer[4] << 8 | answer[5]:
            have.append(port)
            counters = kind.unpack(answer, PerformanceMad.DATA_AT)
            _note_counters(snapshot.ports[_key(port)], counters)
    return have


def _lid_for(node: SubnetNode, port: SubnetPort) -> int:
    end = node.ports.get(0) if node.is_switch else port
    return PortInfo.get(end.info, "lid") if end is not None and end.info else 0


def _counter_request(kind: CounterKind, number: int, transaction: int) -> bytes:
    mad = PerformanceMad(method=Method.GET, transaction_id=transaction)
    return mad.with_attribute(kind(port_select=number)).pack()


def _note_counters(
    view: PortView, counters: PortCounters | PortCountersExtended | PortExtendedSpeedsCounters
) -> None:
    known = view.counters
    if isinstance(counters, PortExtendedSpeedsCounters):
        for name in ("fec_correctable_blocks", "fec_uncorrectable_blocks"):
            known[name] = sum(getattr(counters, name))
        return
    if isinstance(counters, PortCountersExtended):
        known.update({name: getattr(counters, name) for name in DATA})
        # Zeros where the node has no more than these.
        for name in (*ERRORS, "xmit_wait"):
            value = getattr(counters, name)
            if value > known.get(name, 0):
                known[name] = value
                view.full.discard(name)
        return
    for name in (*ERRORS, "xmit_wait"):
        known[name] = value = getattr(counters, name)
        if value == FULL[name]:
            view.full.add(name)
    for name in DATA:
        if getattr(counters, name) < FULL_DATA:
            known[name] = getattr(counters, name)
