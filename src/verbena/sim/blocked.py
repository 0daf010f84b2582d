# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom in a deadlock. ``World.blocked`` calls ``waiting_ports`` once after a run.

The module uses nothing of ``verbena.fabrics``, because a World works without networkx.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Blocked", "waiting_ports"]


class Blocked(NamedTuple):
    """A port with packets that flow control does not let it send.

    ``to_node`` and ``to_port`` are the other end of its link. ``inputs``: the ports by which its
    packets came into a switch; empty at a host.
    """

    node: int
    port: int
    to_node: int
    to_port: int
    inputs: frozenset[int]


def waiting_ports(blocked: Sequence[Blocked]) -> list[tuple[int, int]]:
    """Return (node, port) of ports each of which waits for the next one: a cycle, if there is one.

    A port waits for room at the other end of its link, and so for the first blocked port of that
    switch that has a packet which came from there. Without a cycle the result begins at the first
    blocked port.
    """
    of_node: dict[int, list[Blocked]] = {}
    for one in sorted(blocked, key=lambda one: (one.node, one.port)):
        of_node.setdefault(one.node, []).append(one)
    seen = set[Blocked]()  # ports from which no cycle is reached
    first = list[Blocked]()
    for start in blocked:
        chain, place = list[Blocked](), dict[Blocked, int]()
        at: Blocked | None = start
        while at is not None and at not in seen and at not in place:
            place[at] = len(chain)
            chain.append(at)
            at = _waits_for(at, of_node)
        if at in place:
            return [(one.node, one.port) for one in chain[place[at] :]]
        seen.update(chain)
        first = first or chain
    return [(one.node, one.port) for one in first]


def _waits_for(port: Blocked, of_node: dict[int, list[Blocked]]) -> Blocked | None:
    there = of_node.get(port.to_node, [])
    return next((one for one in there if port.to_port in one.inputs), None)
