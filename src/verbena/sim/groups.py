# SPDX-License-Identifier: Apache-2.0
"""Multicast groups of a world: which hosts a group's packets reach, and the trees of the groups
that programs join.

``_world_groups.pxi`` calls this once for a flow to a group, and when a program joins or leaves a
group; switches forward packets by the ports that were set. The module uses nothing of
``verbena.fabrics``, because a World works without networkx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

__all__ = ["Branches", "ProgramGroups", "Trees", "UnreachableError"]

# A link: the port by which a packet leaves a node; the other end's node and port; whether that is
# a host.
Link = tuple[int, int, int, bool]


class UnreachableError(Exception):
    """A member of a group is not connected to the others."""


class Branches:
    """Follows packets for groups along all their branches.

    ``ways(group, node, port)`` are the links by which a group's packet leaves a switch into which
    it came by ``port``; the link by which it came does not count. The hosts that a switch's own
    packets would reach are kept, since flows of many hosts begin at one switch.
    """

    def __init__(self, ways: Callable[[int, int, int], list[Link]]) -> None:
        self._ways = ways
        self._known: dict[tuple[int, int], frozenset[int] | None] = {}

    def hosts(self, group: int, source: int, link: Link | None) -> int | None:
        """Return how many hosts a packet from a host reaches, or None if it comes into a switch
        twice.

        ``source`` is the host's node, and ``link`` its link.
        """
        if link is None:
            return 0
        _, node, port, is_host = link
        if is_host:
            return 1
        if (group, node) not in self._known:
            self._known[group, node] = self._follow(group, node, port)
        reached = self._known[group, node]
        return None if reached is None else len(reached) - (source in reached)

    def _follow(self, group: int, node: int, port: int) -> frozenset[int] | None:
        """Return the hosts below a switch, that at ``port`` included. None: there is a loop."""
        found, seen, queue = set[int](), {node}, [(node, port)]
        for at, came in queue:
            for out, to, to_port, is_host in self._ways(group, at, came):
                if is_host:
                    found.add(to)
                elif out != came:
                    if to in seen:
                        return None
                    seen.add(to)
                    queue.append((to, to_port))
        return frozenset(found)


class Trees:
    """Trees of shortest paths over the links of a world's switches.

    ``links`` are those of each node, in the order of its ports.
    """

    def __init__(self, links: Sequence[Sequence[Link]]) -> None:
        self._links = links
        self._grown: dict[int, dict[int, tuple[int, int]]] = {}

    def ports(self, members: Iterable[int]) -> dict[int, list[int]]:
        """Return the ports of each switch by which a group's packets leave, but for that by which
        they come.

        ``members`` are nodes of hosts. The root of the tree is the switch of the first; switches
        that are not connected to it have no ports. A switch outside of the tree has the one port
        that leads to it, so that senders need not be members. Raises UnreachableError.
        """
        up: dict[int, tuple[int, int]] = {}
        leads = set[int]()  # members, and switches with a member below them
        for member in members:
            leads.add(member)
            if not self._links[member] or self._links[member][0][3]:
                continue  # it has no link, or a link to another host
            at = self._links[member][0][1]
            up = up or self._up(at)
            if at not in up:
                raise UnreachableError
            while at not in leads:
                leads.add(at)
                at = up[at][1]
        return {
            node: [
                out
                for out, to, to_port, is_host in self._links[node]
                if out == port or (to in leads and (is_host or up[to][0] == to_port))
            ]
            if node in leads
            else [port]
            for node, (port, _) in up.items()
        }

    def _up(self, root: int) -> dict[int, tuple[int, int]]:
        """Return each switch's port towards the root, and the switch there, breadth first."""
        if root not in self._grown:
            up, queue = {root: (-1, root)}, [root]
            for node in queue:
                for _, to, to_port, is_host in self._links[node]:
                    if not is_host and to not in up:
                        up[to] = (to_port, node)
                        queue.append(to)
            self._grown[root] = up
        return self._grown[root]


class Tables(Protocol):
    """What groups read and set of a world (``_world_groups.pxi``)."""

    @property
    def size(self) -> tuple[int, int]: ...
    def links(self) -> list[list[Link]]: ...
    def nodes(self) -> list[int]: ...
    def number(self, gid: bytes, host: int) -> int | None: ...
    def name(self, number: int, gid: bytes, first: int | None) -> None: ...
    def set_ports(self, number: int, node: int, ports: list[int]) -> None: ...


class ProgramGroups:
    """The multicast groups of programs. A group has a GID and members, and exists while it has one.

    ``most``: how many there may be. The switches' ports of a group are set again whenever a host
    joins or leaves.
    """

    def __init__(self, most: int) -> None:
        self._members: list[list[int]] = [[] for _ in range(most)]  # hosts, by number
        self._ports: list[dict[int, list[int]]] = [{} for _ in range(most)]  # by number
        self._size = (0, 0)
        self._trees = Trees([])
        self._nodes = list[int]()

    def join(self, tables: Tables, gid: bytes, host: int) -> None:
        """Make a host a member of the group that it can reach, or of a new one.

        Raises UnreachableError, and MemoryError if there are too many groups.
        """
        number = tables.number(gid, host)
        if number is None:
            number = self._free()
        members = self._members[number]
        if host in members:
            return
        members.append(host)
        try:
            self._set(tables, number)
        except BaseException:
            members.pop()
            raise
        tables.name(number, gid, members[0])

    def leave(self, tables: Tables, gid: bytes, host: int) -> None:
        """Remove a host from the group that it can reach, if it is a member."""
        number = tables.number(gid, host)
        if number is None or host not in self._members[number]:
            return
        members = self._members[number]
        members.remove(host)  # the order stays, since the first member is the tree's root
        tables.name(number, gid, members[0] if members else None)
        with suppress(UnreachableError):
            self._set(tables, number)

    def _free(self) -> int:
        for number, members in enumerate(self._members):
            if not members:
                return number
        raise MemoryError

    def _set(self, tables: Tables, number: int) -> None:
        """Set the ports of those switches that have others than before."""
        if tables.size != self._size:
            self._trees, self._nodes = Trees(tables.links()), tables.nodes()
            self._size = tables.size
        ports = self._trees.ports(self._nodes[host] for host in self._members[number])
        before = self._ports[number]
        for node in before.keys() | ports.keys():
            if before.get(node, []) != ports.get(node, []):
                tables.set_ports(number, node, ports.get(node, []))
        self._ports[number] = ports
