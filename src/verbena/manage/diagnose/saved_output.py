# SPDX-License-Identifier: Apache-2.0
"""Reads saved output of ibnetdiscover, iblinkinfo, ibqueryerrors, perfquery and dump_lfts.

``read_saved`` takes the texts of several programs in any order, as infiniband-diags prints them,
and makes one ``FabricSnapshot``. Nodes are the same if their descriptions are; perfquery names a
port by its LID, which one of the other texts has to explain. Lines that are none of these programs'
are skipped, since logs have warnings among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from verbena.fabrics import ibnetdiscover
from verbena.fabrics.errors import FabricError

from ..agents.link_speeds import SPEEDS, WIDTHS, LinkRate
from ..codes import PortState
from ..errors import MadError
from .fabric_snapshot import FabricSnapshot, PortKey

__all__ = ["read_saved"]

# Counters as the programs name them, and as ``PortTally`` does.
COUNTERS = {
    "SymbolErrorCounter": "symbol_errors",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "rcv_errors",
    "PortRcvRemotePhysicalErrors": "rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "rcv_switch_relay_errors",
    "PortXmitDiscards": "xmit_discards",
    "PortXmitConstraintErrors": "xmit_constraint_errors",
    "PortRcvConstraintErrors": "rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "QP1Dropped": "qp1_dropped",
    "VL15Dropped": "vl15_dropped",
    "PortXmitData": "xmit_data",
    "PortRcvData": "rcv_data",
    "PortXmitPkts": "xmit_packets",
    "PortRcvPkts": "rcv_packets",
    "PortXmitWait": "xmit_wait",
    "FECCorrectableBlockCtr": "fec_correctable_blocks",
    "FECUncorrectableBlockCtr": "fec_uncorrectable_blocks",
}
# The largest values of PortCounters; with -x the counters are wider and do not reach them so.
FULL = {
    **dict.fromkeys(("symbol_errors", "rcv_errors", "xmit_discards"), 0xFFFF),
    **dict.fromkeys(("link_error_recovery", "link_downed"), 0xFF),
    "xmit_wait": 0xFFFFFFFF,
}
MOST_HOST_PORTS = 4
ALL_PORTS = 255
# Gb/s of a lane as iblinkinfo prints them.
SPEED_OF = {
    "2.5": "SDR",
    "5.0": "DDR",
    "10.0": "QDR",
    "14.0625": "FDR",
    "25.78125": "EDR",
    "53.125": "HDR",
    "106.25": "NDR",
    "212.5": "XDR",
}
_ERRORS_FOR = re.compile(r'(?:Errors|Data Counters) for 0x([0-9a-fA-F]+) "(.*)"')
_COUNTER_LINE = re.compile(r"\s*GUID 0x([0-9a-fA-F]+) port (\d+): (\[.*)")
_COUNTER = re.compile(r"\[(\w+) == (\d+)")
_LINK_HEAD = re.compile(r"(Switch|CA|Router): (?:0x([0-9a-fA-F]+) )?(.*):$")
_LINK = re.compile(
    r'\s*(?:Link info:)?\s*(?:0x[0-9a-fA-F]+\s+)?(?:"\s*(?P<name>[^"]*)"\s+)?'
    r"(?P<lid>\d+)\s+(?P<port>\d+)\[[^\]]*\]\s*==\(\s*(?P<state>.*?)\)==>\s*"
    r'(?:0x[0-9a-fA-F]+\s+)?(?:(?P<peer_lid>\d+)\s+(?P<peer_port>\d+)\[[^\]]*\]\s*"'
    r'(?P<peer>[^"]*)")?\s*(?P<could>.*)$'
)
_STATE = re.compile(r"(?:(\d+)X\s+)?(?:([\d.]+) Gbps|(FDR10))?\s*(\w+)/\s*(\w+)")
_WIDTH_COULD = re.compile(r"Could be (\d+)X")
_SPEED_COULD = re.compile(r"Could be (?:([\d.]+) Gbps|(FDR10))")
_PERFQUERY = re.compile(r"# Port (?:extended )?counters: Lid (\d+) port (\d+)")
_FIELD = re.compile(r"(\w+):\.+(\d+)$")
_TABLE_HEAD = re.compile(r"Unicast lids.* guid 0x([0-9a-fA-F]+)(?: \((.*)\))?")
_TABLE_LINE = re.compile(r"0x([0-9a-fA-F]+)\s+(\d+)\b")
_NETDISCOVER = re.compile(r'^(?:Switch|Ca|Rt)\s+\d+\s+"', re.MULTILINE)
STATES = {"Down": 1, "Initialize": 2, "Init": 2, "Armed": 3, "Active": 4}


def read_saved(
    texts: Iterable[str], time: float | None = None, names: Sequence[str] = ()
) -> FabricSnapshot:
    """Return what the texts say. Raises MadError for one that is of none of the programs.

    ``names`` are those of the texts, as an error tells them.
    """
    reader = _SavedReader(FabricSnapshot(time))
    kept = list(texts)
    for text in kept:
        if _NETDISCOVER.search(text):
            reader.netdiscover(text)
    for number, text in enumerate(kept, 1):
        if not reader.lines(text.splitlines()) and not _NETDISCOVER.search(text):
            name = names[number - 1] if names else f"text {number}"
            raise MadError(
                f"{name} is no output of ibnetdiscover, iblinkinfo, ibqueryerrors, perfquery or"
                " dump_lfts"
            )
    reader.finish()
    return reader.snapshot


class _SavedReader:
    """Goes through lines, and remembers to which node or port the next ones belong."""

    def __init__(self, snapshot: FabricSnapshot) -> None:
        self.snapshot = snapshot
        self._node = ""
        self._asked: tuple[int, int] | None = None
        self._of_ports: list[tuple[int, int, str, int]] = []  # LID, port, counter, value
        self._tables: dict[int, bytearray] = {}
        self._table: bytearray | None = None
        self._has_all_links = set[str]()  # nodes of ibnetdiscover, which names every link
        self._is_summed = False  # ibqueryerrors has checked all, and names what is bad alone

    def netdiscover(self, text: str) -> None:
        """Take nodes and cables from the output of ibnetdiscover. Raises MadError."""
        try:
            fabric = ibnetdiscover.read("\n".join(_without_warnings(text)))
        except FabricError as error:
            raise MadError(f"ibnetdiscover: {error}") from None
        for name, data in fabric.graph.nodes(data=True):
            view = self.snapshot.add_node(
                name, is_switch=data["kind"] == "switch", guid=fabric.guid(name)
            )
            lids = {0: data.get("lid", 0)} if view.is_switch else data.get("lids", {})
            self._has_all_links.add(name)
            view.lids.update({port: range(lid, lid + 1) for port, lid in lids.items() if lid})
        for cable in fabric.cables():
            one, other = PortKey(cable.a, cable.a_port), PortKey(cable.b, cable.b_port)
            self.snapshot.connect(one, other)
            found = re.fullmatch(r"(\d+)x(\w+)", cable.rate.name)
            for key in (one, other):
                view_of = self.snapshot.port(key)
                if found and found[2] in SPEEDS:
                    view_of.active = LinkRate(int(found[1]), found[2])

    def lines(self, lines: list[str]) -> bool:
        """Take the lines of the other programs. Returns whether there was one."""
        known = False
        for line in lines:
            if found := _ERRORS_FOR.match(line):
                self._node = self._named(found[2].strip(), int(found[1], 16))
            elif found := _COUNTER_LINE.match(line):
                self._counters(int(found[2]), found[3])
            elif found := _LINK_HEAD.match(line):
                self._node = found[3].strip()
                guid = int(found[2], 16) if found[2] else 0
                self.snapshot.add_node(self._node, is_switch=found[1] == "Switch", guid=guid)
            elif found := _LINK.match(line):
                self._link(found)
            elif found := _PERFQUERY.match(line):
                self._asked = int(found[1]), int(found[2])
            elif (found := _FIELD.match(line)) and self._asked is not None:
                name = COUNTERS.get(found[1])
                if name is not None:
                    self._of_ports.append((*self._asked, name, int(found[2])))
            elif found := _TABLE_HEAD.match(line):
                self._table = self._tables.setdefault(int(found[1], 16), bytearray())
            elif (found := _TABLE_LINE.match(line)) and self._table is not None:
                self._entry(int(found[1], 16), int(found[2]))
            else:
                summary = line.startswith("## Summary:")
                self._is_summed |= summary
                known |= summary
                continue
            known = True
        return known

    def _named(self, description: str, guid: int) -> str:
        """The name of a node; ibnetdiscover names nodes of one description by their GUIDs."""
        by_guid = (n.name for n in self.snapshot.nodes.values() if n.guid == guid and guid)
        return next(by_guid, description)

    def _counters(self, number: int, text: str) -> None:
        if not self._node:
            return
        counters = {
            COUNTERS[name]: int(value) for name, value in _COUNTER.findall(text) if name in COUNTERS
        }
        self._note(PortKey(self._node, number), counters)

    def _note(self, key: PortKey, counters: dict[str, int]) -> None:
        self.snapshot.add_counters(key, counters)
        full = {name for name, value in counters.items() if FULL.get(name) == value}
        self.snapshot.port(key).full |= full

    def _link(self, found: re.Match[str]) -> None:
        name = (found["name"] or self._node).strip()
        if not name:
            return
        key = PortKey(name, int(found["port"]))
        node = self.snapshot.add_node(name, is_switch=False)
        if int(found["lid"]):
            lid = int(found["lid"])
            node.lids.setdefault(0 if node.is_switch else key.number, range(lid, lid + 1))
        self._link_state(key, found["state"], found["could"])
        if found["peer"]:
            peer = PortKey(found["peer"].strip(), int(found["peer_port"]))
            self.snapshot.connect(key, peer)

    def _link_state(self, key: PortKey, text: str, could: str) -> None:
        found = _STATE.search(text)
        if found is None:
            return
        view = self.snapshot.port(key)
        view.state = STATES.get(found[4], view.state)
        speed = SPEED_OF.get(found[2] or "", found[3] or "")
        if not found[1] or not speed or view.state == PortState.DOWN:
            return
        active = LinkRate(int(found[1]), speed)
        width, faster = _WIDTH_COULD.search(could), _SPEED_COULD.search(could)
        lanes = int(width[1]) if width and int(width[1]) in WIDTHS else active.lanes
        best = SPEED_OF.get(faster[1] or "", faster[2] or speed) if faster else speed
        view.active, view.supported = active, LinkRate(lanes, best)

    def _entry(self, lid: int, port: int) -> None:
        assert self._table is not None
        if len(self._table) <= lid:
            self._table += b"\xff" * (lid + 1 - len(self._table))
        self._table[lid] = min(port, 255)

    def finish(self) -> None:
        """Resolve what was named by LID or GUID."""
        self._infer_switches()
        owners = {
            lid: (node, number)
            for node in self.snapshot.nodes.values()
            for number, lids in node.lids.items()
            for lid in lids
        }
        for lid, number, counter, value in self._of_ports:
            owner = owners.get(lid)
            name = owner[0].name if owner else f"LID {lid}"
            if owner is None:
                self.snapshot.add_node(name, is_switch=False).is_kind_known = False
            if number != ALL_PORTS:
                self._note(PortKey(name, number), {counter: value})
        for node in self.snapshot.nodes.values():
            if node.guid in self._tables:
                node.table = bytes(self._tables[node.guid])
        for key, view in self.snapshot.ports.items():
            if key.node in self._has_all_links and key.number and key not in self.snapshot.peers:
                view.state = PortState.DOWN
        self._note_what_lacks()

    def _note_what_lacks(self) -> None:
        seen = self.snapshot
        if seen.peers:
            return
        seen.can_judge = self._is_summed or any(view.counters for view in seen.ports.values())
        what = "counters, and not" if seen.can_judge else "not"
        seen.lacks.append(
            f"This is not enough: it has {what} the cables between the nodes. Add the output of"
            " ibnetdiscover."
        )

    def _infer_switches(self) -> None:
        """Add nodes that only counters or links name, and say which of them are switches.

        iblinkinfo --line and ibqueryerrors do not tell: a node with several linked ports, or a port
        beyond 4, is a switch, and one that has a row of its own is a host otherwise.
        """
        linked: dict[str, int] = {}
        for key in self.snapshot.peers:
            linked[key.node] = linked.get(key.node, 0) + 1
        for key in {*self.snapshot.ports, *self.snapshot.peers}:
            node = self.snapshot.nodes.get(key.node)
            if node is None:
                node = self.snapshot.add_node(key.node, is_switch=False)
                node.is_kind_known = False
            if linked.get(key.node, 0) > 2 or key.number > MOST_HOST_PORTS:
                node.is_switch = node.is_kind_known = True
        for node in self.snapshot.nodes.values():
            if node.is_switch and node.lids:
                node.lids = {0: next(iter(node.lids.values()))}


def _without_warnings(text: str) -> Iterator[str]:
    """The lines without those that libraries print to stderr."""
    for line in text.splitlines():
        if not line.startswith(("ibwarn:", "./lib", "src/", "ibpanic:")):
            yield line
