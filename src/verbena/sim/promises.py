# SPDX-License-Identifier: Apache-2.0
"""How much of a switch's buffer flows can reserve. ``_world_flows.pxi`` asks once for a switch.

The module uses nothing of ``verbena.fabrics``, because a World works without networkx.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["reservable"]

# An acknowledgement, a NAK or a notification on Ethernet, with HPCC's telemetry.
ANSWER = 98 + 42


def reservable(buffer: int, links: int, stops: Iterable[int], alphas: Iterable[float]) -> int:
    """Return the bytes that flows can reserve in an empty switch with so many links.

    The rest is for acknowledgements: two of each link, which may arrive while their output sends a
    packet, and so much that each lossy lane, by its share ``alpha`` of what is free (0: no limit),
    admits two. And it is for what lanes with pauses may hold until they send a pause frame: each of
    ``stops`` at every link.
    """
    answers = 2 * ANSWER * links
    for alpha in alphas:
        if alpha > 0 and 2 * ANSWER / alpha > answers:
            answers = int(min(2 * ANSWER / alpha, buffer))
    return max(0, buffer - answers - sum(stops) * links)
