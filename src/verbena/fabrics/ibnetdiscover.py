# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the output of ``ibnetdiscover`` (infiniband-diags), which ibsim reads, too.

Programs and scenarios call this.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .fabric import Fabric
from .rates import LANES

__all__ = ["read", "read_lfts", "write"]

KINDS = {"Switch": "switch", "Ca": "host", "Hca": "host", "Rt": "host"}
_NODE = re.compile(r'(Switch|Ca|Hca|Rt)\s+(\d+)\s+"([^"]+)"\s*(?:#\s*(.*))?$')
_PORT = re.compile(r'\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([^"]+)"\[(\d+)\]\S*\s*(?:#\s*(.*))?$')
_GUID = re.compile(r"(?:switchguid|caguid|rtguid)s?=0x([0-9a-fA-F]+)")
_DESCRIPTION = re.compile(r'"(.*)"')
_RATE = re.compile(r"\b(\d+)x([A-Z]+(?:10)?)\b")
_OWN_LID = re.compile(r"^lid (\d+)")
_SWITCH_LID = re.compile(r"base port 0 lid (\d+)")
_SKIPPED = re.compile(r"(vendid|devid|sysimgguid|Chassis|#|module|DR path)", re.IGNORECASE)


@dataclass
class _Node:
    line: int
    kind: str
    ports: int
    id: str
    guid: int | None
    name: str
    lid: int
    peers: dict[int, _Peer] = field(default_factory=dict)


@dataclass(frozen=True)
class _Peer:
    line: int
    id: str
    port: int
    rate: str | None
    lid: int


def read(
    text: str, *, name: str = "ibnetdiscover", rate: str = "4xEDR", length_m: float = 1.0
) -> Fabric:
    """Return the fabric that the text describes.

    Nodes are named by their descriptions if these differ, otherwise by identifiers such as
    "S-0002c90000000001". LIDs and GUIDs are kept. ``rate`` is for cables without a rate in the
    text, ``length_m`` for all cables, whose lengths it does not have. Raises FabricError, which
    names the line.
    """
    nodes: dict[str, _Node] = {}
    for node in _nodes(text):
        if node.id in nodes:
            before = nodes[node.id].line
            raise FabricError(f"line {node.line}: {node.id} is described in line {before} already")
        nodes[node.id] = node
    taken = Counter(node.name for node in nodes.values())
    names = {id_: n.name if n.name and taken[n.name] == 1 else id_ for id_, n in nodes.items()}
    fabric = Fabric(name)
    for id_, node in nodes.items():
        if node.kind == "switch":
            fabric.add_switch(names[id_], ports=node.ports, guid=node.guid, lid=node.lid)
        else:
            lids = {port: peer.lid for port, peer in node.peers.items() if peer.lid}
            fabric.add_host(names[id_], ports=node.ports, guid=node.guid, lids=lids)
    for id_, node in nodes.items():
        for port, peer in node.peers.items():
            _check_peer(nodes, node, port, peer)
            if (id_, port) < (peer.id, peer.port):
                other = nodes[peer.id].peers[peer.port]
                try:
                    fabric.connect(
                        names[id_],
                        names[peer.id],
                        a_port=port,
                        b_port=peer.port,
                        rate=peer.rate or other.rate or rate,
                        length_m=length_m,
                    )
                except FabricError as error:
                    raise FabricError(f"line {peer.line}: {error}") from None
    return fabric


def _check_peer(nodes: dict[str, _Node], node: _Node, port: int, peer: _Peer) -> None:
    if peer.id not in nodes:
        raise FabricError(f"line {peer.line}: {peer.id} is not described")
    back = nodes[peer.id].peers.get(peer.port)
    if back is None or (back.id, back.port) != (node.id, port):
        seen = f"{back.id}[{back.port}]" if back else "nothing"
        raise FabricError(
            f"line {peer.line}: {node.id}[{port}] is cabled to {peer.id}[{peer.port}], "
            f"which is cabled to {seen}"
        )


def _nodes(text: str) -> Iterator[_Node]:
    node: _Node | None = None
    guid: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if found := _NODE.match(line):
            if node is not None:
                yield node
            node, guid = _node(number, found, guid), None
        elif found := _PORT.match(line):
            if node is None:
                raise FabricError(f"line {number}: a port without a node")
            _add_port(number, node, found)
        elif found := _GUID.match(line):
            guid = int(found[1], 16)
        elif line and not _SKIPPED.match(line):
            raise FabricError(f"line {number}: {line!r} is no line of ibnetdiscover")
    if node is not None:
        yield node


def _node(number: int, found: re.Match[str], guid: int | None) -> _Node:
    comment = found[4] or ""
    name = _DESCRIPTION.search(comment)
    lid = _SWITCH_LID.search(comment)
    plain = name[1] if name else ("" if re.match(r"[SHR]-[0-9a-f]{16}$", found[3]) else found[3])
    return _Node(
        number, KINDS[found[1]], int(found[2]), found[3], guid, plain, int(lid[1]) if lid else 0
    )


def _add_port(number: int, node: _Node, found: re.Match[str]) -> None:
    port, comment = int(found[1]), _DESCRIPTION.sub("", found[4] or "")
    if port in node.peers:
        raise FabricError(f"line {number}: {node.id}: port {port} is used twice")
    rates = _RATE.findall(comment)
    known = rates and rates[-1][1] in LANES
    lid = _OWN_LID.match(found[4] or "") if node.kind == "host" else None
    node.peers[port] = _Peer(
        number,
        found[2],
        int(found[3]),
        "x".join(rates[-1]) if known else None,
        int(lid[1]) if lid else 0,
    )


def write(fabric: Fabric) -> str:
    """Return the fabric as ibnetdiscover prints one, without delays.

    Raises FabricError, which names the cable, for a rate that InfiniBand does not have.
    """
    tables = fabric.tables()
    lids = {
        (tables.names[node], int(port)): int(lid)
        for node, port, lid in zip(tables.end_node, tables.end_port, tables.lid, strict=True)
    }
    switch_lids = dict(zip(fabric.switches, tables.switch_lid.tolist(), strict=True))
    lines = ["#", "# Topology file: written by Verbena", "#"]
    for name in (*fabric.switches, *fabric.hosts):
        lines += ["", *_described(fabric, name, lids, switch_lids)]
    return "\n".join(lines) + "\n"


def _described(
    fabric: Fabric, name: str, lids: dict[tuple[str, int], int], switch_lids: dict[str, int]
) -> Iterator[str]:
    node, guid, switch = fabric.graph.nodes[name], fabric.guid(name), name in switch_lids
    yield "vendid=0x0"
    yield "devid=0x0"
    yield f"sysimgguid=0x{guid:x}"
    if switch:
        yield f"switchguid=0x{guid:x}({guid:x})"
        base = f"base port 0 lid {switch_lids[name]} lmc 0"
        yield f'Switch\t{node["ports"]} "{_id(fabric, name)}"\t\t# "{name}" {base}'
    else:
        yield f"caguid=0x{guid:x}"
        yield f'Ca\t{node["ports"]} "{_id(fabric, name)}"\t\t# "{name}"'
    for port in range(1, node["ports"] + 1):
        cable = fabric.cable(name, port)
        if cable is None:
            continue
        if not _RATE.fullmatch(cable.rate.name):
            raise FabricError(f"{cable}: {cable.rate} is no InfiniBand rate")
        here = (cable.a, cable.a_port) == (name, port)
        peer, at = (cable.b, cable.b_port) if here else (cable.a, cable.a_port)
        lid = switch_lids.get(peer, lids.get((peer, at), 0))
        remote = f'"{_id(fabric, peer)}"[{at}]'
        if switch:
            guid_of = "" if peer in switch_lids else f"({fabric.guid(peer) + at:x}) "
            yield f'[{port}]\t{remote}{guid_of}\t\t# "{peer}" lid {lid} {cable.rate}'
        else:
            own = f"lid {lids[name, port]} lmc 0"
            yield f'[{port}]({guid + port:x}) \t{remote}\t\t# {own} "{peer}" lid {lid} {cable.rate}'


def _id(fabric: Fabric, name: str) -> str:
    letter = "S" if fabric.graph.nodes[name]["kind"] == "switch" else "H"
    return f"{letter}-{fabric.guid(name):016x}"


_TABLE_HEAD = re.compile(r"Unicast lids.* guid 0x([0-9a-fA-F]+)")
_TABLE_LINE = re.compile(r"0x([0-9a-fA-F]+)\s+(\d+)\b")


def read_lfts(fabric: Fabric, text: str) -> NDArray[Any]:
    """Read forwarding tables, as ``opensm-lfts.dump`` or ``dump_lfts`` has them.

    Returns [S, LIDs] uint8 or uint16, for ``Routes.from_lft``. A LID that the text does not have is
    255 (65535), which means no path. Raises FabricError for a switch that is not in the fabric.
    """
    tables = fabric.tables()
    row = {int(guid): n for n, guid in enumerate(tables.guids[tables.host_count :])}
    kind = np.uint16 if tables.out_link.shape[1] > 255 else np.uint8
    top = max(int(tables.lid.max()), int(tables.switch_lid.max(initial=0)))
    lft = np.full((tables.switch_count, top + 1), np.iinfo(kind).max, kind)
    switch = -1
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE_HEAD.match(line.strip()):
            switch = row.get(int(found[1], 16), -1)
            if switch < 0:
                raise FabricError(f"line {number}: no switch with GUID 0x{found[1]}")
        elif (found := _TABLE_LINE.match(line.strip())) and switch >= 0:
            lid, port = int(found[1], 16), int(found[2])
            if port > np.iinfo(kind).max:
                raise FabricError(f"line {number}: LID {lid} goes to port {port}, which is none")
            if lid <= top:
                lft[switch, lid] = port
    return lft
