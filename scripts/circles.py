# SPDX-License-Identifier: Apache-2.0
"""Cycles among the files of a room: finds them, and lists the allowed ones with their reasons.

check_layers.py calls this. A C file is one unit with its header; its arrows are its includes. A
Python module's arrows are what it imports when it is loaded, so not what a function imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def named(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Room: {files of the cycle: the reason}. When a file leaves a cycle, remove it here, too.
ALLOWED: Mapping[str, Mapping[frozenset[str], str]] = {
    "dropin": {
        named("context failures"): (
            "a context's calls end as failures.h says, which limits the log of each context"
        ),
    },
    "event": {
        named("crew detour gate lanes link partition switch tap telemetry watchdog"): (
            "a packet's way: a link brings it to a switch, whose lanes send it on a link, which "
            "may lead to another partition"
        ),
    },
    "hca": {
        named(
            "adapter ah channel cq decline dm event gone mr multicast mw overdue pd qp refusal srq "
            "users vigil xrc"
        ): (
            "the verbs objects name each other: a queue pair its queues, a queue its waiting queue "
            "pairs"
        ),
    },
    "memory": {
        named("heap heap_state"): "a state that only the heap's two files see",
    },
    "direct": {
        named(
            "atomic bounce connection datagram direct flow handshake later link_turn notice "
            "other_build peer place recover requester responder retry service unplaced xrc_proxy"
        ): "the carrier's struct is in direct.h, and direct.c opens its parts",
    },
    "host": {
        named("carriers host"): "the host's port table names the carriers' calls",
    },
    "roce": {
        named("path roce state"): "a state that only the carrier's files see",
    },
    "sim": {
        named("attachment capture host_inside nic sim socket state tcp tcp_frame"): (
            "a state that only the simulated host's files see"
        ),
    },
    "preload/paths": {
        named("contents tree"): "a file's contents list its folder's files",
    },
    "transport": {
        named("early mend recovery replies requester responder retry"): (
            "what is lost is sent again: the requester and the responder ask the parts that decide "
            "it, and those ask them for packets"
        ),
    },
    "verbena.wire": {
        named("verbena.wire verbena.wire.opcodes verbena.wire.packet"): (
            "the package offers what its modules have, which use its compiled one"
        ),
    },
}


def circles(arrows: Mapping[str, Iterable[str]]) -> Iterator[frozenset[str]]:
    """Yield the strongly connected components of two and more nodes (Tarjan, 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> Iterator[frozenset[str]]:
        order[node] = lowest[node] = len(order)
        path.append(node)
        for target in arrows.get(node, ()):
            if target not in order:
                yield from visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in path:
                lowest[node] = min(lowest[node], order[target])
        if lowest[node] == order[node]:
            group = path[path.index(node) :]
            del path[path.index(node) :]
            if len(group) > 1:
                yield frozenset(group)

    for node in arrows:
        if node not in order:
            yield from visit(node)


def problems(room: str, arrows: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield cycles of a room that are not allowed, and allowed ones that it does not have."""
    allowed = ALLOWED.get(room, {})
    found = set(circles(arrows))
    for circle in found - set(allowed):
        yield (
            f"{room}: {', '.join(sorted(circle))} use each other in a circle: part them, or give "
            "the reason in scripts/circles.py"
        )
    for circle in set(allowed) - found:
        yield (
            f"{room}: {', '.join(sorted(circle))} are no circle (any more): take it out of "
            "scripts/circles.py"
        )
