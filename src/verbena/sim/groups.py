# SPDX-License-Identifier: Apache-2.0
"""Multicast groups of a world: which hosts a group's packets reach, and the trees of the groups
that programs join.

``_world_groups.pxi`` calls this once for a flow to a group, and when a program joins or leaves a
group; switches forward packets by the ports that were set. The module uses nothing of
``verbena.fabrics``, because a World works without networkx.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Branches"]

# A link: the port by which a packet leaves a node; the other end's node and port; whether that is
# a host.
Link = tuple[int, int, int, bool]


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
