# SPDX-License-Identifier: Apache-2.0
"""A small subnet manager to test agents with: it explores, gives LIDs, routes and activates."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, TypeVar

from verbena.manage.agents import NodeAgent, Subnet
from verbena.manage.attribute_ids import Method
from verbena.manage.codes import NodeType, PortState
from verbena.manage.mad import DirectedSmp
from verbena.manage.record import Record
from verbena.manage.smp_attributes import (
    LinearForwardingTable,
    NodeInfo,
    PortInfo,
    SwitchInfo,
)

R = TypeVar("R", bound=Record)
PREFIX = 0xFE80000000000000


def get(
    subnet: Subnet, host: str, kind: type[R], path: tuple[int, ...] = (), modifier: int = 0
) -> R:
    """The attribute that a node at the end of a route has."""
    response = ask(subnet, host, kind, path, modifier)
    assert response is not None
    assert response.status_code == 0, response
    return response.attribute(kind)


def ask(
    subnet: Subnet,
    host: str,
    kind: type[Record],
    path: tuple[int, ...] = (),
    modifier: int = 0,
    **header: Any,
) -> DirectedSmp | None:
    """The response to a Get."""
    smp = DirectedSmp(attribute_id=kind.ATTRIBUTE, attribute_modifier=modifier, **header)
    return subnet.ask(host, smp.along(path))


def put(
    subnet: Subnet,
    host: str,
    record: Record,
    path: tuple[int, ...] = (),
    modifier: int = 0,
    **header: Any,
) -> int | None:
    """The status of the response to a Set, or None without a response."""
    smp = DirectedSmp(method=Method.SET, attribute_modifier=modifier, **header)
    response = subnet.ask(host, smp.along(path).with_attribute(record))
    return None if response is None else response.status_code


def change(
    subnet: Subnet,
    host: str,
    path: tuple[int, ...],
    port: int,
    *,
    m_key: int = 0,
    **values: Any,
) -> int | None:
    """The status of a Set of PortInfo that changes these fields of what a Get returns."""
    before = ask(subnet, host, PortInfo, path, port, m_key=m_key)
    if before is None:
        return None
    info = before.attribute(PortInfo).replace(port_state=0, port_physical_state=0)
    return put(subnet, host, info.replace(**values), path, port, m_key=m_key)


@dataclass
class Found:
    """A node that was explored: the shortest path to it, and what is at each of its ports."""

    info: NodeInfo
    path: tuple[int, ...]
    peers: dict[int, tuple[int, int]]  # port: GUID of the neighbour and its port

    @property
    def is_switch(self) -> bool:
        return self.info.node_type == NodeType.SWITCH


def explore(subnet: Subnet, host: str) -> dict[int, Found]:
    """Every node that directed routes reach from a host, by GUID."""
    first = get(subnet, host, NodeInfo)
    found = {first.node_guid: Found(first, (), {})}
    to_visit = deque([first.node_guid])
    while to_visit:
        here = found[to_visit.popleft()]
        ports = range(1, here.info.num_ports + 1)
        for port in ports if here.is_switch or not here.path else ():
            if get(subnet, host, PortInfo, here.path, port).port_state == PortState.DOWN:
                continue
            path = (*here.path, port)
            response = ask(subnet, host, NodeInfo, path)
            if response is None:  # the other port of the own adapter
                continue
            info = response.attribute(NodeInfo)
            here.peers[port] = info.node_guid, info.local_port_num
            if info.node_guid not in found:
                found[info.node_guid] = Found(info, path, {})
                to_visit.append(info.node_guid)
    return found


def bring_up(subnet: Subnet, host: str, **end_fields: Any) -> dict[int, int]:
    """Configure every node as a subnet manager does. Returns LIDs by NodeGUID."""
    found = explore(subnet, host)
    lids = {guid: number for number, guid in enumerate(found, 1)}
    sm_lid = 1
    for guid, node in found.items():
        port = 0 if node.is_switch else node.info.local_port_num
        fields = {"lid": lids[guid], "master_sm_lid": sm_lid, "gid_prefix": PREFIX} | end_fields
        assert change(subnet, host, node.path, port, **fields) == 0
        if node.is_switch:
            info = get(subnet, host, SwitchInfo, node.path)
            top = info.replace(linear_fdb_top=len(lids), port_state_change=True)
            assert put(subnet, host, top, node.path) == 0
            table = bytearray(b"\xff" * (64 * (len(lids) // 64 + 1)))
            for other, output in hops(found, guid).items():
                table[lids[other]] = output
            for block in range(len(table) // 64):
                ports = LinearForwardingTable(ports=table[64 * block : 64 * block + 64])
                assert put(subnet, host, ports, node.path, block) == 0
    for state in (PortState.ARMED, PortState.ACTIVE):
        for node in found.values():
            ports = node.peers if node.is_switch else [node.info.local_port_num]
            for port in ports:
                assert change(subnet, host, node.path, port, port_state=state) == 0
    return lids


def hops(found: dict[int, Found], start: int) -> dict[int, int]:
    """The output port of a switch on a shortest way to each node; 0 to itself."""
    output = {start: 0}
    to_visit = deque([start])
    while to_visit:
        here = to_visit.popleft()
        if here != start and not found[here].is_switch:
            continue
        for port, (peer, _) in found[here].peers.items():
            if peer not in output:
                output[peer] = port if here == start else output[here]
                to_visit.append(peer)
    return output


def node_of(subnet: Subnet, guid: int) -> NodeAgent:
    return next(node for node in subnet.nodes.values() if node.guid == guid)
