# SPDX-License-Identifier: Apache-2.0
"""Well-known topologies. Hosts are h0, h1, ...; a host's number gives its switch and port.

Every function takes the wiring as keywords: ``rate`` of all cables ("4xEDR"), ``delay_ns`` or
``length_m`` (a metre), and for the cables between switches, where they differ, ``switch_rate``,
``switch_delay_ns`` or ``switch_length_m``. Impossible sizes raise FabricError.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from .errors import FabricError
from .fabric import Fabric
from .rates import Rate

__all__ = [
    "Wiring",
    "chain",
    "clos2",
    "clos3",
    "diamond",
    "dragonfly",
    "dumbbell",
    "fat_tree",
    "one_switch",
    "pair",
    "parking_lot",
    "rails",
    "ring",
    "torus",
    "xgft",
]

MAX_NODES = 1 << 20  # of one kind: a larger number is taken for a typing mistake
LEVELS = "heacdfgi"  # the first letters of a tree's node names: hosts, edge, aggregation, core


class Wiring(TypedDict, total=False):
    """Keywords of every function here, ``**wiring``.

    ``rate`` of cables ("100GbE"; default 4xEDR), and their ``delay_ns`` or ``length_m`` (default a
    metre); with the prefix ``switch_`` those of cables between switches.
    """

    rate: str | Rate
    delay_ns: float
    length_m: float
    switch_rate: str | Rate
    switch_delay_ns: float
    switch_length_m: float


class _Builder:
    """A fabric that is being wired."""

    def __init__(self, name: str, wiring: Wiring) -> None:
        self.fabric = Fabric(name)
        self._hosts = 0
        own = {"rate", "delay_ns", "length_m"}
        if unknown := set(wiring) - own - {f"switch_{key}" for key in own}:
            raise FabricError(f"{name}: no such wiring: {', '.join(sorted(unknown))}")
        self._outer = {key: value for key, value in wiring.items() if key in own}
        special = {key[7:]: value for key, value in wiring.items() if key not in own}
        both = {"delay_ns", "length_m"}
        inner = {k: v for k, v in self._outer.items() if not (both & set(special) and k in both)}
        self._inner = {**inner, **special}

    def host(self, x: float, y: float, switch: str | None = None, port: int | None = None) -> str:
        name = self.fabric.add_host(f"h{self._hosts}", pos=(x, y))
        self._hosts += 1
        if switch is not None:
            self.fabric.connect(name, switch, b_port=port, **self._outer)  # type: ignore[arg-type]
        return name

    def server(self, x: float, y: float, switches: Sequence[str]) -> str:
        """A host with a port for each of these switches, in their order."""
        name = self.fabric.add_host(f"h{self._hosts}", ports=len(switches), pos=(x, y))
        self._hosts += 1
        for port, switch in enumerate(switches, 1):
            self.fabric.connect(name, switch, a_port=port, **self._outer)  # type: ignore[arg-type]
        return name

    def switch(self, name: str, ports: int, x: float, y: float, **more: Any) -> str:
        return self.fabric.add_switch(name, ports=ports, pos=(x, y), **more)

    def link(self, a: str, b: str, a_port: int | None = None, b_port: int | None = None) -> None:
        self.fabric.connect(a, b, a_port=a_port, b_port=b_port, **self._inner)  # type: ignore[arg-type]


def _at_least(name: str, **sizes: tuple[int, int]) -> None:
    """Each size with its least value."""
    for what, (value, least) in sizes.items():
        if value < least:
            raise FabricError(f"{name}: {what} is {value}, which is less than {least}")


def pair(**wiring: Unpack[Wiring]) -> Fabric:
    """Two hosts and a cable, without a switch."""
    build = _Builder("pair", wiring)
    a, b = build.host(0, 0), build.host(1, 0)
    build.fabric.connect(a, b, **build._outer)  # type: ignore[arg-type]
    return build.fabric


def one_switch(hosts: int, **wiring: Unpack[Wiring]) -> Fabric:
    """``hosts`` hosts on the ports 1, 2, ... of one switch, s0."""
    _at_least("one switch", hosts=(hosts, 1))
    build = _Builder(f"one switch of {hosts} hosts", wiring)
    build.switch("s0", hosts, (hosts - 1) / 2, 1)
    for index in range(hosts):
        build.host(index, 0, "s0")
    return build.fabric


def diamond(hosts: int = 1, paths: int = 2, **wiring: Unpack[Wiring]) -> Fabric:
    """``hosts`` hosts on each of two switches, s0 and s1, with ``paths`` paths between them.

    Each path has one switch in its middle: m0, m1, ... The hosts of s0 are the first ones.
    """
    _at_least("diamond", hosts=(hosts, 1), paths=(paths, 1))
    build = _Builder(f"diamond of {paths} paths", wiring)
    for index, x in ((0, 1.0), (1, 3.0)):
        build.switch(f"s{index}", hosts + paths, x, 0)
    for side, x in ((0, 0.0), (1, 4.0)):
        for index in range(hosts):
            build.host(x, index - (hosts - 1) / 2, f"s{side}")
    for index in range(paths):
        build.switch(f"m{index}", 2, 2, (paths - 1) / 2 - index)
        build.link("s0", f"m{index}")
        build.link(f"m{index}", "s1")
    return build.fabric


def chain(switches: int, hosts: int = 1, **wiring: Unpack[Wiring]) -> Fabric:
    """A row of switches s0, s1, ..., each with ``hosts`` hosts: host i is on s(i // hosts)."""
    _at_least("chain", switches=(switches, 1), hosts=(hosts, 1))
    build = _Builder(f"chain of {switches} switches", wiring)
    for index in range(switches):
        build.switch(f"s{index}", hosts + 2, index, 1)
        _hosts_below(build, f"s{index}", index, hosts)
    for index in range(switches - 1):
        build.link(f"s{index}", f"s{index + 1}")
    return build.fabric


def _hosts_below(build: _Builder, switch: str, x: float, hosts: int) -> None:
    for index in range(hosts):
        build.host(x + (index - (hosts - 1) / 2) / max(hosts, 2), 0, switch)


def dumbbell(left: int, right: int, **wiring: Unpack[Wiring]) -> Fabric:
    """``left`` hosts on s0, ``right`` hosts on s1, and one cable between the switches."""
    _at_least("dumbbell", left=(left, 1), right=(right, 1))
    build = _Builder(f"dumbbell of {left} and {right} hosts", wiring)
    for side, count in enumerate((left, right)):
        build.switch(f"s{side}", count + 1, 1 + side, 0)
        for index in range(count):
            build.host(3 * side, (count - 1) / 2 - index, f"s{side}")
    build.link("s0", "s1")
    return build.fabric


def parking_lot(senders: int, **wiring: Unpack[Wiring]) -> Fabric:
    """``senders`` hosts, one on each switch of a chain, and a receiver behind the last switch.

    Host i is on switch i, and the receiver, host ``senders``, on the last. With round robin at each
    switch a sender gets 1/2 as much as the next one towards the receiver (RFC 7928 8.3 has a
    variant).
    """
    _at_least("parking lot", senders=(senders, 2))
    build = _Builder(f"parking lot of {senders} senders", wiring)
    for index in range(senders):
        build.switch(f"s{index}", 3, index, 1)
        build.host(index, 0, f"s{index}")
    build.host(senders, 1, f"s{senders - 1}")
    for index in range(senders - 1):
        build.link(f"s{index}", f"s{index + 1}")
    return build.fabric


def ring(switches: int, hosts: int = 1, **wiring: Unpack[Wiring]) -> Fabric:
    """Switches s0, s1, ... in a ring, each with ``hosts`` hosts: host i is on s(i // hosts)."""
    _at_least("ring", switches=(switches, 3), hosts=(hosts, 1))
    build = _torus(f"ring of {switches} switches", (switches,), hosts, True, wiring)
    _on_a_circle(build.fabric, switches)
    return build.fabric


def _on_a_circle(fabric: Fabric, switches: int) -> None:
    """Set the positions of a ring's nodes, in a circle."""
    graph = fabric.graph
    for index in range(switches):
        angle = 2 * math.pi * index / switches
        graph.nodes[f"s{index}"]["pos"] = (math.sin(angle), math.cos(angle))
    per = len(fabric.hosts) // switches
    for index, host in enumerate(fabric.hosts):
        angle = 2 * math.pi * (index // per + (index % per - (per - 1) / 2) / (2 * per)) / switches
        graph.nodes[host]["pos"] = (1.5 * math.sin(angle), 1.5 * math.cos(angle))


def torus(
    shape: Sequence[int], hosts: int = 1, *, wrap: bool = True, **wiring: Unpack[Wiring]
) -> Fabric:
    """A torus of any dimensions (Dally and Seitz 1987), or with ``wrap=False`` a mesh.

    A switch has ``hosts`` hosts on its ports 1 to hosts. Then, for each dimension d, follow a port
    to the next switch, hosts + 2d + 1, and one to the switch before, hosts + 2d + 2. A dimension of
    two switches has one cable, a dimension of one has none. Switches are numbered with the last
    coordinate running fastest; a switch's attribute ``coordinate`` has all of them.
    """
    name = f"{'x'.join(map(str, shape))} {'torus' if wrap else 'mesh'}"
    return _torus(name, tuple(shape), hosts, wrap, wiring).fabric


def _torus(name: str, shape: tuple[int, ...], hosts: int, wrap: bool, wiring: Wiring) -> _Builder:
    _at_least(name, dimensions=(len(shape), 1), hosts=(hosts, 0))
    _at_least(name, **{f"dimension {d}": (size, 1) for d, size in enumerate(shape)})
    if math.prod(shape) > MAX_NODES:
        raise FabricError(f"{name}: more than {MAX_NODES} switches")
    build = _Builder(name, wiring)
    places = list(itertools.product(*map(range, shape)))
    number = {place: index for index, place in enumerate(places)}
    for index, place in enumerate(places):
        x, y = _in_the_plane(place, shape)
        build.switch(f"s{index}", hosts + 2 * len(shape), x, y, coordinate=place)
        for host in range(hosts):
            build.host(x + 0.3, y - 0.3 - 0.2 * host, f"s{index}")
    for index, place in enumerate(places):
        for d, size in enumerate(shape):
            last = place[d] == size - 1
            if size == 1 or (last and (size == 2 or not wrap)):
                continue
            after = (*place[:d], (place[d] + 1) % size, *place[d + 1 :])
            out, back = hosts + 2 * d + 1, hosts + 2 * d + 2
            build.link(f"s{index}", f"s{number[after]}", out, back)
    return build


def _in_the_plane(place: tuple[int, ...], shape: tuple[int, ...]) -> tuple[float, float]:
    """Return a position: the last two dimensions as a grid; others as grids beside and above."""
    x, y, width, height = 0.0, 0.0, 1.0, 1.0
    for depth, (at, size) in enumerate(zip(reversed(place), reversed(shape), strict=True)):
        if depth % 2 == 0:
            x, width = x + at * width, width * (size + 1)
        else:
            y, height = y - at * height, height * (size + 1)
    return x, y


def xgft(
    children: Sequence[int],
    parents: Sequence[int],
    parallel: Sequence[int] | None = None,
    *,
    name: str | None = None,
    **wiring: Unpack[Wiring],
) -> Fabric:
    """An extended generalised fat-tree, XGFT(n; m1..mn; w1..wn) of Oehring et al. (IPPS 1995).

    A switch of level l (from 1) has ``children[l-1]`` children; a node of level l-1 has
    ``parents[l-1]`` parents; hosts are level 0 and have one, so ``parents[0]`` is 1. With
    ``parallel[l-1]`` cables between the two (1) it is the parallel-ports fat-tree of Zahavi (2010).
    There are m1*...*mn hosts; level l has w1*...*wl * m(l+1)*...*mn switches, named e, a, c, d, ...
    and a number. Ports: children first, then parents.
    """
    parallel = [1] * len(children) if parallel is None else list(parallel)
    name = name or f"XGFT({len(children)}; {list(children)}; {list(parents)})"
    if not len(children) == len(parents) == len(parallel) or not children:
        raise FabricError(f"{name}: children, parents and parallel have different lengths")
    _at_least(name, **{f"size {n}": (v, 1) for n, v in enumerate([*children, *parents, *parallel])})
    if parents[0] != 1 or parallel[0] != 1:
        raise FabricError(f"{name}: a host has one parent and one cable")
    counts = [_level_size(children, parents, level) for level in range(len(children) + 1)]
    if len(counts) > len(LEVELS) or max(counts) > MAX_NODES:
        raise FabricError(f"{name}: more than {len(LEVELS)} levels or {MAX_NODES} nodes on one")
    build = _Builder(name, wiring)
    width = max(counts)
    for level in range(1, len(counts)):
        up = parents[level] * parallel[level] if level < len(children) else 0
        ports = children[level - 1] * parallel[level - 1] + up
        for index in range(counts[level]):
            x = (index + 0.5) * width / counts[level]
            build.switch(f"{LEVELS[level]}{index}", ports, x, level)
    for index in range(counts[0]):
        x = (index + 0.5) * width / counts[0]
        build.host(x, 0, f"{LEVELS[1]}{index // children[0]}", index % children[0] + 1)
    for level in range(1, len(children)):
        below = children[level - 1] * parallel[level - 1]
        many = math.prod(parents[:level])
        for index in range(counts[level]):
            rest, own = divmod(index, many)
            above, child = divmod(rest, children[level])
            for parent, copy in itertools.product(range(parents[level]), range(parallel[level])):
                top = (above * many + own) * parents[level] + parent
                build.link(
                    f"{LEVELS[level]}{index}",
                    f"{LEVELS[level + 1]}{top}",
                    below + parent * parallel[level] + copy + 1,
                    child * parallel[level] + copy + 1,
                )
    return build.fabric


def _level_size(children: Sequence[int], parents: Sequence[int], level: int) -> int:
    return math.prod(parents[:level]) * math.prod(children[level:])


def fat_tree(k: int, **wiring: Unpack[Wiring]) -> Fabric:
    """The k-ary fat-tree of Al-Fares et al. (SIGCOMM 2008), for an even k.

    k**3/4 hosts; k pods of k/2 edge (e) and k/2 aggregation (a) switches; k**2/4 core (c)
    switches; all have k ports. Host h is on edge switch h // (k/2). ``wiring``: ``rate``,
    ``delay_ns`` or ``length_m`` of all cables, ``switch_`` and these of those between switches.
    """
    if k < 2 or k % 2:
        raise FabricError(f"fat-tree: k is {k}, which is not an even number from 2 on")
    half = k // 2
    return xgft([half, half, k], [1, half, half], name=f"fat-tree of k={k}", **wiring)


def rails(
    servers: int,
    rails: int = 8,
    *,
    leaf_servers: int | None = None,
    spines: int = 0,
    **wiring: Unpack[Wiring],
) -> Fabric:
    """Servers of ``rails`` ports, as machines with a network card for each GPU have them.

    Port r of every server is on a leaf of rail r: r1l0, r1l1, ... for the first port. A leaf has
    ``leaf_servers`` servers (default: all of them). Each leaf reaches all of the ``spines`` s0, s1,
    ..., which join the rails. Without spines each rail is a network of its own (Wang and others,
    "Rail-only", 2023), and has one leaf.
    """
    leaf_servers = servers if leaf_servers is None else leaf_servers
    _at_least("rails", servers=(servers, 1), rails=(rails, 1), leaf_servers=(leaf_servers, 1))
    _at_least("rails", spines=(spines, 0))
    leaves = math.ceil(servers / leaf_servers)
    if leaves > 1 and not spines:
        raise FabricError(
            f"rails: {servers} servers are on {leaves} leaves of a rail, which no spine joins: give"
            f" spines, or leaf_servers={servers}"
        )
    build = _Builder(f"{servers} servers on {rails} rails", wiring)
    names = [[f"r{rail}l{leaf}" for leaf in range(leaves)] for rail in range(1, rails + 1)]
    width = max(servers, rails * leaves)
    for rail, row in enumerate(names):
        for leaf, name in enumerate(row):
            place = (leaf * rails + rail + 0.5) * width / (rails * leaves)
            build.switch(name, leaf_servers + spines, place, 1)
    for server in range(servers):
        place = (server + 0.5) * width / servers
        build.server(place, 0, [row[server // leaf_servers] for row in names])
    for spine in range(spines):
        name = build.switch(f"s{spine}", rails * leaves, (spine + 0.5) * width / spines, 2)
        for leaf_name in itertools.chain.from_iterable(names):
            build.link(leaf_name, name)
    return build.fabric


def clos2(
    radix: int,
    *,
    oversubscription: float = 1,
    leaves: int | None = None,
    parallel: int = 1,
    **wiring: Unpack[Wiring],
) -> Fabric:
    """Leaves (e) and spines (a) of ``radix`` ports; every leaf reaches every spine.

    A leaf has d ports for hosts and u for spines, d / u being as near to ``oversubscription`` as
    their sum allows. ``leaves`` is how many there are (as many as the spines have ports for), and
    ``parallel`` how many cables lead from a leaf to a spine: there are u / parallel spines.
    """
    down, up = _split("clos2", radix, oversubscription)
    if parallel < 1 or up % parallel:
        raise FabricError(f"clos2: {up} uplinks do not go into {parallel} parallel cables")
    most = radix // parallel
    leaves = most if leaves is None else leaves
    if not 1 <= leaves <= most:
        raise FabricError(f"clos2: {leaves} leaves, but a spine has ports for 1 to {most}")
    name = f"Clos of {leaves} leaves, {up // parallel} spines"
    return xgft([down, leaves], [1, up // parallel], [1, parallel], name=name, **wiring)


def clos3(
    radix: int,
    *,
    oversubscription: float = 1,
    pods: int | None = None,
    pod_leaves: int | None = None,
    core_oversubscription: float = 1,
    **wiring: Unpack[Wiring],
) -> Fabric:
    """Pods of leaves (e) and spines (a), and cores (c) above them, of ``radix`` ports each.

    ``oversubscription`` is that of a leaf, ``core_oversubscription`` that of a spine, as in clos2.
    A pod has ``pod_leaves`` leaves (what a spine has ports for), and there are ``pods`` pods (what
    a core has ports for). With neither oversubscribed it is the fat-tree of k = radix.
    """
    down, up = _split("clos3", radix, oversubscription)
    most, core_up = _split("clos3", radix, core_oversubscription)
    pod_leaves = most if pod_leaves is None else pod_leaves
    pods = radix if pods is None else pods
    if not 1 <= pod_leaves <= most:
        raise FabricError(f"clos3: {pod_leaves} leaves in a pod, where there can be 1 to {most}")
    if not 1 <= pods <= radix:
        raise FabricError(f"clos3: {pods} pods, where a core has ports for 1 to {radix}")
    name = f"Clos of {pods} pods of {pod_leaves} leaves"
    return xgft([down, pod_leaves, pods], [1, up, core_up], name=name, **wiring)


def _split(name: str, radix: int, oversubscription: float) -> tuple[int, int]:
    """Ports down and up."""
    if radix < 2 or not 0 < oversubscription < math.inf:
        raise FabricError(f"{name}: radix {radix} with oversubscription {oversubscription:g}")
    down = min(max(round(radix * oversubscription / (1 + oversubscription)), 1), radix - 1)
    return down, radix - down


def dragonfly(
    p: int, a: int, h: int, *, groups: int | None = None, **wiring: Unpack[Wiring]
) -> Fabric:
    """The dragonfly of Kim et al. (ISCA 2008): groups of ``a`` switches, all joined to each other.

    A switch has ``p`` hosts (ports 1 to p), a-1 local cables and ``h`` global ones (its last
    ports). There are up to a*h + 1 groups (as many, if ``groups`` is not given), any two joined by
    one cable: port j of group i, counted over its switches, leads to group i + j + 1.
    """
    _at_least("dragonfly", p=(p, 1), a=(a, 1), h=(h, 1))
    full = a * h + 1
    groups = full if groups is None else groups
    if not 2 <= groups <= full:
        raise FabricError(f"dragonfly: {groups} groups, where a*h + 1 allows 2 to {full}")
    build = _Builder(f"dragonfly p={p} a={a} h={h}", wiring)
    for group, member in itertools.product(range(groups), range(a)):
        index = group * a + member
        (x, y), (dx, dy) = _dragonfly_place(group, member, groups, a)
        switch = build.switch(f"s{index}", p + a - 1 + h, x, y, group=group)
        for host in range(p):
            build.host(x + dx * (1 + host / p), y + dy * (1 + host / p), switch)
    for group in range(groups):
        base = group * a
        for one, other in itertools.combinations(range(a), 2):
            # Local port n leads to the n-th of the others.
            build.link(f"s{base + one}", f"s{base + other}", p + other, p + one + 1)
        for j in range(full - 1):
            there = (group + j + 1) % full
            if group < there < groups:
                back = full - 2 - j
                build.link(
                    f"s{base + j // h}",
                    f"s{there * a + back // h}",
                    p + a + j % h,
                    p + a + back % h,
                )
    return build.fabric


def _dragonfly_place(
    group: int, member: int, groups: int, a: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return a switch's position, in a circle of circles, and the direction from it to its
    hosts."""
    turn, own = 2 * math.pi * group / groups, 2 * math.pi * (member + 0.5) / a
    out = (math.sin(turn + own), math.cos(turn + own))
    x, y = groups * math.sin(turn) + 1.1 * out[0], groups * math.cos(turn) + 1.1 * out[1]
    return (x, y), (0.8 * out[0], 0.8 * out[1])
