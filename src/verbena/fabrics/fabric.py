# SPDX-License-Identifier: Apache-2.0
"""A fabric: hosts, switches, and the cables between their numbered ports.

Topologies and readers of files build a Fabric; routing engines and the simulator use its
``tables()``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx

from .errors import FabricError
from .rates import Rate, rate
from .tables import Tables, build

__all__ = ["Cable", "Fabric"]

PS_PER_METRE = 5_000  # light in fibre and in copper: about 0.2 m/ns
MAX_PORTS = 1023
MAX_DELAY_PS = 10**12  # a second: light goes around the world seven times
FIRST_GUID = {"host": 0x0010_0000, "switch": 0x2000_0000}


@dataclass(frozen=True)
class Cable:
    """A full-duplex link between port ``a_port`` of node ``a`` and port ``b_port`` of ``b``."""

    a: str
    a_port: int
    b: str
    b_port: int
    rate: Rate
    delay_ps: int

    def __str__(self) -> str:
        return f"{self.a}[{self.a_port}]-{self.b}[{self.b_port}]"


class Fabric:
    """Hosts and switches with numbered ports, on a networkx multigraph.

    ``graph`` is the multigraph. A node has ``kind`` ("host" or "switch"), ``ports`` (their number)
    and ``guid``; an edge has ``cable``, a Cable. All of networkx may read it, but change it only by
    the methods here, which keep the ports consistent. Mistakes raise FabricError.
    """

    def __init__(self, name: str = "fabric") -> None:
        self.graph: nx.MultiGraph = nx.MultiGraph(name=name)
        self._cables: list[Cable] = []
        self._cabled: dict[str, dict[int, Cable]] = {}
        self._free: dict[str, int] = {}
        self._guids: dict[int, str] = {}
        self._tables: Tables | None = None

    @property
    def name(self) -> str:
        """The fabric's name, for texts."""
        return str(self.graph.graph["name"])

    # ---- building ----------------------------------------------------------------------------

    def add_host(self, name: str, *, ports: int = 1, guid: int | None = None, **more: Any) -> str:
        """Add a host (channel adapter) with ``ports`` ports, numbered from 1. Returns its name.

        ``more`` are attributes of the graph's node: ``pos`` (x, y) is its position in pictures, and
        ``lids`` a dictionary from port to LID for fabrics that have LIDs already.
        """
        return self._add("host", name, ports, guid, more)

    def add_switch(self, name: str, *, ports: int, guid: int | None = None, **more: Any) -> str:
        """Add a switch with ``ports`` ports, numbered from 1. Returns its name.

        ``more`` as for a host; ``lid`` is the LID of its port 0, and ``coordinate`` its position in
        a torus.
        """
        return self._add("switch", name, ports, guid, more)

    def _add(self, kind: str, name: str, ports: int, guid: int | None, more: dict[str, Any]) -> str:
        if not name:
            raise FabricError(f"a {kind} needs a name")
        if name in self.graph:
            raise FabricError(f"{name}: there is a node of this name already")
        if not 1 <= ports <= MAX_PORTS:
            raise FabricError(f"{name}: {ports} ports, which is not 1 to {MAX_PORTS}")
        if guid is None:
            guid = self._next_guid(kind, ports)
        if not 0 <= guid < 1 << 64:
            raise FabricError(f"{name}: {guid:#x} is no GUID of 64 bits")
        if guid in self._guids:
            raise FabricError(f"{name}: GUID {guid:#x} is that of {self._guids[guid]}")
        self._guids[guid] = name
        self.graph.add_node(name, kind=kind, ports=ports, guid=guid, **more)
        self._cabled[name], self._free[name] = {}, 1
        self._tables = None
        return name

    def _next_guid(self, kind: str, ports: int) -> int:
        """Return the next GUID as ibsim does: a switch takes one, an adapter one more for each
        port."""
        key = f"next {kind} guid"
        guid: int = self.graph.graph.get(key, FIRST_GUID[kind])
        while guid in self._guids:
            guid += 1
        self.graph.graph[key] = guid + (ports + 1 if kind == "host" else 1)
        return guid

    def connect(
        self,
        a: str,
        b: str,
        *,
        a_port: int | None = None,
        b_port: int | None = None,
        rate: str | Rate = "4xEDR",
        delay_ns: float | None = None,
        length_m: float | None = None,
    ) -> Cable:
        """Connect two nodes by a cable and return it; a port that is not given is the lowest free
        one.

        ``rate`` as for ``rates.rate``. The delay is ``delay_ns``, or 5 ns for each metre of
        ``length_m``; with neither, a metre.
        """
        if a == b:
            raise FabricError(f"{a}: a cable from a node to itself")
        cable = Cable(
            a,
            self._port(a, a_port, b),
            b,
            self._port(b, b_port, a),
            _rate(a, b, rate),
            _delay(a, b, delay_ns, length_m),
        )
        self._cabled[a][cable.a_port] = cable
        self._cabled[b][cable.b_port] = cable
        self._cables.append(cable)
        self.graph.add_edge(a, b, key=cable, cable=cable)
        self._tables = None
        return cable

    def disconnect(self, name: str, port: int) -> Cable:
        """Remove the cable at a port and return it. Raises FabricError when there is none."""
        cable = self.cable(name, port)
        if cable is None:
            raise FabricError(f"{name}: no cable at port {port}")
        for node, at in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
            del self._cabled[node][at]
            self._free[node] = min(self._free[node], at)
        self._cables.remove(cable)
        self.graph.remove_edge(cable.a, cable.b, key=cable)
        self._tables = None
        return cable

    def _port(self, name: str, port: int | None, other: str) -> int:
        if name not in self.graph:
            raise FabricError(f"{name}: no such node, for the cable to {other}")
        ports, cabled = self.graph.nodes[name]["ports"], self._cabled[name]
        if port is None:
            while self._free[name] in cabled:
                self._free[name] += 1
            port = self._free[name]
            if port > ports:
                raise FabricError(f"{name}: no free port for {other}, all {ports} are in use")
        if not 1 <= port <= ports:
            raise FabricError(f"{name}: no port {port} for {other}, it has 1 to {ports}")
        if port in cabled:
            raise FabricError(f"{name}: port {port} is used twice, by {cabled[port]} and {other}")
        return port

    # ---- asking ------------------------------------------------------------------------------

    @property
    def hosts(self) -> list[str]:
        """Names, in the order in which they were added."""
        return [name for name, kind in self.graph.nodes(data="kind") if kind == "host"]

    @property
    def switches(self) -> list[str]:
        """Names, in the order in which they were added."""
        return [name for name, kind in self.graph.nodes(data="kind") if kind == "switch"]

    def cables(self) -> Iterator[Cable]:
        """In the order in which they were connected."""
        yield from self._cables

    def cable(self, name: str, port: int) -> Cable | None:
        """Return the cable at a port, or None. Raises FabricError when there is no such node."""
        if name not in self.graph:
            raise FabricError(f"{name}: no such node")
        return self._cabled[name].get(port)

    def guid(self, name: str) -> int:
        """Return the node's GUID, by which engines order switches and hosts when they balance
        paths."""
        return int(self.graph.nodes[name]["guid"])

    def check(self) -> None:
        """Raise FabricError, which names a node, if the fabric is not connected or a host has no
        cable."""
        if not self.hosts:
            raise FabricError(f"{self.name}: a fabric without hosts")
        for name in self.graph:
            if not self._cabled[name]:
                kind = self.graph.nodes[name]["kind"]
                raise FabricError(f"{name}: a {kind} without a link")
        first, *others = nx.connected_components(self.graph)
        if others:
            here, there = _some(first, self.hosts), _some(others[0], self.hosts)
            raise FabricError(f"{self.name} is not connected: no way from {here} to {there}")

    def tables(self) -> Tables:
        """Check the fabric and return it as arrays, which are cached until a change."""
        if self._tables is None:
            self.check()
            self._tables = build(self.graph, self._cables)
        return self._tables

    def __repr__(self) -> str:
        cables = self.graph.number_of_edges()
        return (
            f"<Fabric {self.name}: {len(self.hosts)} hosts, {len(self.switches)} switches, "
            f"{cables} cables>"
        )


def _some(component: set[str], hosts: list[str]) -> str:
    """Return the first host of a part of the graph, or else its first node by name."""
    return next((host for host in hosts if host in component), min(component))


def _rate(a: str, b: str, value: str | Rate) -> Rate:
    try:
        return rate(value)
    except FabricError as error:
        raise FabricError(f"{a} to {b}: {error}") from None


def _delay(a: str, b: str, delay_ns: float | None, length_m: float | None) -> int:
    if delay_ns is not None and length_m is not None:
        raise FabricError(f"{a} to {b}: a delay or a length, not both")
    if delay_ns is None:
        delay_ps = PS_PER_METRE * (1.0 if length_m is None else length_m)
    else:
        delay_ps = 1000 * delay_ns
    if not (math.isfinite(delay_ps) and 0 <= delay_ps <= MAX_DELAY_PS):
        raise FabricError(f"{a} to {b}: a delay of {delay_ps / 1000:g} ns is not 0 to 1 s")
    return round(delay_ps)
