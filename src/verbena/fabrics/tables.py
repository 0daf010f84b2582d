# SPDX-License-Identifier: Apache-2.0
"""A fabric as arrays, for the routing engines and for the simulator. ``Fabric.tables`` makes
them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .links import LinkNames

if TYPE_CHECKING:
    import networkx as nx

    from .fabric import Cable

__all__ = ["LINK", "Tables", "build"]

LINK = np.dtype(
    [
        ("src", np.int32),
        ("src_port", np.int32),
        ("dst", np.int32),
        ("dst_port", np.int32),
        ("rate", np.int64),
        ("ps_num", np.int64),
        ("ps_den", np.int64),
        ("delay_ps", np.int64),
    ]
)


@dataclass(frozen=True)
class Tables:
    """H hosts, S switches, P ports of the largest switch, D end ports, L directed links.

    An end port is a cabled port of a host; it has a LID. A fabric of hosts with one port each has
    as many end ports as hosts, in the same order. Node numbers are 0 to H-1 for hosts, H to H+S-1
    for switches; arrays "by switch" count switches from 0.

    ``names`` [H+S]; ``guids`` [H+S] uint64. ``links`` [L] of dtype LINK: a cable is links 2c and
    2c+1, its two directions. ``rate`` is in bits per second, rounded; a byte takes exactly ``ps_num
    / ps_den`` picoseconds. ``out_link`` [S, P+1]: the link that leaves a switch's port, or -1.
    ``neighbour`` [S, P+1]: the switch at its other end, or -1 where there is none or a host.
    ``end_node``, ``end_port`` [D]: host and its port; ``end_link`` [D] the link that leaves it;
    ``end_switch``, ``end_switch_port`` [D]: the switch and port that it is plugged into, or -1 for
    a cable from host to host. ``lid`` [D], ``switch_lid`` [S].
    """

    names: tuple[str, ...]
    host_count: int
    guids: NDArray[np.uint64]
    links: NDArray[Any]
    out_link: NDArray[np.int32]
    neighbour: NDArray[np.int32]
    end_node: NDArray[np.int32]
    end_port: NDArray[np.int32]
    end_link: NDArray[np.int32]
    end_switch: NDArray[np.int32]
    end_switch_port: NDArray[np.int32]
    lid: NDArray[np.int32]
    switch_lid: NDArray[np.int32]

    @property
    def switch_count(self) -> int:
        """How many of the nodes are switches."""
        return len(self.names) - self.host_count

    @property
    def end_count(self) -> int:
        """How many end ports there are."""
        return len(self.end_node)

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each node by its name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def first_end(self) -> NDArray[np.int32]:
        """[H]: the first end port of each host, or -1."""
        first = np.full(self.host_count, -1, np.int32)
        first[self.end_node[::-1]] = np.arange(self.end_count, dtype=np.int32)[::-1]
        return first

    @cached_property
    def switch_edges(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Switch, port and neighbour of every port that leads to a switch; by switch and port."""
        switch, port = np.nonzero(self.neighbour >= 0)
        return switch.astype(np.int32), port.astype(np.int32), self.neighbour[switch, port]

    @cached_property
    def leaves(self) -> NDArray[np.int32]:
        """Switches that have end ports, ascending."""
        return np.unique(self.end_switch[self.end_switch >= 0])

    @cached_property
    def hosts_at(self) -> NDArray[np.int64]:
        """[S]: how many end ports are plugged into each switch."""
        used = self.end_switch[self.end_switch >= 0]
        return np.bincount(used, minlength=self.switch_count)

    def switch_name(self, switch: int) -> str:
        """Return the name of a switch by its number among the switches."""
        return self.names[self.host_count + int(switch)]

    def end_of(self, host: str | int) -> int:
        """The first end port of a host, by name or number. Raises FabricError."""
        number = self.number.get(host, -1) if isinstance(host, str) else host
        if not 0 <= number < self.host_count:
            raise FabricError(f"{host}: no such host")
        return int(self.first_end[number])

    @cached_property
    def link_names(self) -> LinkNames:
        """The names of ``links``."""
        ends = (self.links[part] for part in ("src", "src_port", "dst", "dst_port"))
        return LinkNames(self.names, *ends)

    def link_name(self, link: int) -> str:
        """Return the name of a directed link: "s0-s1", or "s0[3]-s1[4]" if there are several."""
        return self.link_names.name(link)


def build(graph: nx.MultiGraph, cables: list[Cable]) -> Tables:
    """Return the arrays of a graph that was checked."""
    hosts = [name for name, kind in graph.nodes(data="kind") if kind == "host"]
    switches = [name for name, kind in graph.nodes(data="kind") if kind == "switch"]
    names = (*hosts, *switches)
    number = {name: index for index, name in enumerate(names)}
    links = _links(cables, number)
    ends = _ends(links, len(hosts))
    radix = max((graph.nodes[name]["ports"] for name in switches), default=0)
    out_link = np.full((len(switches), radix + 1), -1, np.int32)
    neighbour = out_link.copy()
    leaving = np.nonzero(links["src"] >= len(hosts))[0]
    where = links["src"][leaving] - len(hosts), links["src_port"][leaving]
    out_link[where] = leaving
    neighbour[where] = np.maximum(links["dst"][leaving] - len(hosts), -1)
    at_switch = links["dst"][ends] >= len(hosts)
    lid, switch_lid = _lids(graph, hosts, switches, links[ends])
    return Tables(
        names,
        len(hosts),
        np.array([graph.nodes[name]["guid"] for name in names], np.uint64),
        links,
        out_link,
        neighbour,
        links["src"][ends],
        links["src_port"][ends],
        ends,
        np.where(at_switch, links["dst"][ends] - len(hosts), -1).astype(np.int32),
        np.where(at_switch, links["dst_port"][ends], -1).astype(np.int32),
        lid,
        switch_lid,
    )


def _links(cables: list[Cable], number: dict[str, int]) -> NDArray[Any]:
    links = np.zeros(2 * len(cables), LINK)
    ends = ((c.a, c.a_port, c.b, c.b_port) for c in cables)
    links["src"][0::2], links["src_port"][0::2], links["dst"][0::2], links["dst_port"][0::2] = zip(
        *((number[a], p, number[b], q) for a, p, b, q in ends), strict=True
    )
    for one, other in (("src", "dst"), ("dst", "src"), ("src_port", "dst_port")):
        links[one][1::2] = links[other][0::2]
    links["dst_port"][1::2] = links["src_port"][0::2]
    per_byte = {c.rate: c.rate.ps_per_byte for c in cables}
    links["rate"] = np.repeat([round(c.rate.bits_per_second) for c in cables], 2)
    links["ps_num"] = np.repeat([per_byte[c.rate].numerator for c in cables], 2)
    links["ps_den"] = np.repeat([per_byte[c.rate].denominator for c in cables], 2)
    links["delay_ps"] = np.repeat([c.delay_ps for c in cables], 2)
    return links


def _ends(links: NDArray[Any], host_count: int) -> NDArray[np.int32]:
    """The links that leave hosts, by host and port."""
    leaving = np.nonzero(links["src"] < host_count)[0]
    order = np.lexsort((links["src_port"][leaving], links["src"][leaving]))
    return leaving[order].astype(np.int32)


def _lids(
    graph: nx.MultiGraph, hosts: list[str], switches: list[str], ends: NDArray[Any]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the fabric's own LIDs if it has any, otherwise 1 to D for end ports, then switches."""
    given = [
        graph.nodes[hosts[end["src"]]].get("lids", {}).get(int(end["src_port"]), 0) for end in ends
    ]
    given += [graph.nodes[name].get("lid", 0) for name in switches]
    lids = np.array(given, np.int64)
    if not lids.any():
        lids = np.arange(1, len(lids) + 1)
    labels = [hosts[end["src"]] for end in ends] + switches
    _check_lids(lids, labels, len(ends))
    return lids[: len(ends)].astype(np.int32), lids[len(ends) :].astype(np.int32)


def _check_lids(lids: NDArray[np.int64], labels: list[str], end_count: int) -> None:
    """Raise FabricError for an end port without a LID or a LID that is used twice."""
    if (lids[:end_count] <= 0).any():
        raise FabricError(f"{labels[int(np.argmin(lids[:end_count]))]}: a host without a LID")
    some = np.nonzero(lids)[0]
    _, first, count = np.unique(lids[some], return_index=True, return_counts=True)
    if (count > 1).any():
        lid = lids[some[first[np.argmax(count > 1)]]]
        names = " and ".join(labels[at] for at in np.nonzero(lids == lid)[0])
        raise FabricError(f"LID {lid} is used twice, by {names}")
