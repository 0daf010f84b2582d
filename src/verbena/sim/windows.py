# SPDX-License-Identifier: Apache-2.0
"""The sentence about a window that is too small for its round trip.

The notes of scenarios and ``World.advice`` share it. It uses nothing of ``verbena.fabrics``,
because a World works without networkx.
"""

from __future__ import annotations

from verbena.sim.units import size_text, time_text

__all__ = ["window_text"]

MIB = 1 << 20


def window_text(
    window: int,
    key: str,
    packet: int,
    source: str,
    target: str,
    trip: float,
    rate: float,
    remedy: str,
) -> str:
    """Return the sentence about a window that is too small for a round trip in ps and a rate in
    bits/s.

    One ``packet`` of so many bytes is sent whatever the window is. ``remedy`` is how a window of
    ``{}`` MiB is written where ``key`` is set.
    """
    carried = max(window, packet) * 8e3 / trip  # Gb/s
    enough = -(-int(trip * rate / 8e12) // MIB)
    return (
        f"a window of {size_text(window)} ({key}) lets one connection from {source} to {target} "
        f"carry at most {carried:.3g} of {rate / 1e9:.3g} Gb/s, since the round trip "
        f"is {time_text(trip)}: {remedy.format(enough)} fills the link"
    )
