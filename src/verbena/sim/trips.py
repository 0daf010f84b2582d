# SPDX-License-Identifier: Apache-2.0
"""Round trips of packets and their acknowledgements, and notes about settings below them.

``Scenario`` asks before a run. A timeout below the round trip repeats everything, or ends the
connection, although nothing was lost. A window with fewer bytes than the round trip takes keeps a
connection below the rate of its links.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.fabrics import Routes
from verbena.sim.units import time_text
from verbena.sim.windows import window_text

__all__ = ["round_trips", "timeout_note", "window_note"]

UNIT = 4_096_000  # ps: the local ACK timeout is this times 2^timeout (IBA 9.7.6.1.3)
LONGEST = 31


def round_trips(
    routes: Routes, src: ArrayLike, dst: ArrayLike, size: ArrayLike, cut_through: bool = False
) -> NDArray[np.float64]:
    """Return [n]: ps from the first bit of ``size`` bytes to their acknowledgement, without queues.

    It is a lower bound: headers and the acknowledgement's own bits are left out. A switch forwards
    a packet when it has all of it, or with ``cut_through`` at once.
    """
    links = routes.tables.links
    there, back = routes.links(src, dst), routes.links(dst, src)
    byte = np.where(there >= 0, (links["ps_num"] / links["ps_den"])[there], 0.0)
    wire = byte.max(axis=1) if cut_through else byte.sum(axis=1)
    delay = sum(np.where(way >= 0, links["delay_ps"][way], 0).sum(axis=1) for way in (there, back))
    trips: NDArray[np.float64] = delay + wire * np.asarray(size, float)
    return trips


def timeout_note(
    routes: Routes,
    pairs: NDArray[np.int64],
    size: int,
    timeout: int,
    retries: int,
    cut_through: bool = False,
) -> str:
    """Return a note if a timeout (an exponent above 0) is below the round trip of RC; otherwise
    ""."""
    if not len(pairs):
        return ""
    trips = round_trips(routes, pairs[:, 0], pairs[:, 1], size, cut_through)
    lasts = UNIT << timeout
    worst = int(trips.argmax())
    if trips[worst] <= lasts:
        return ""
    names = [routes.tables.names[int(host)] for host in pairs[worst]]
    fails = trips[worst] > lasts * (retries + 1)
    what = "its flows fail" if fails else "packets are sent again though none was lost"
    enough = next((n for n in range(timeout, LONGEST + 1) if UNIT << n > trips[worst]), 0)
    return (
        f"RC waits {time_text(lasts)} for an answer (adapter.timeout = {timeout}), and the round "
        f"trip of {names[0]} and {names[1]} is {time_text(trips[worst])} or more, so {what}: "
        f"adapter.timeout = {enough} is longer"
    )


def window_note(
    routes: Routes,
    pairs: NDArray[np.int64],
    size: int,
    window: int,
    key: str,
    cut_through: bool = False,
) -> str:
    """Return a note if a window keeps one connection between these hosts below its rate; otherwise
    "".

    ``size``: bytes of a packet. ``key``: the setting that the window comes from.
    """
    if not len(pairs):
        return ""
    trips = round_trips(routes, pairs[:, 0], pairs[:, 1], size, cut_through)
    links, way = routes.tables.links, routes.links(pairs[:, 0], pairs[:, 1])
    slowest = np.where(way >= 0, links["rate"][way], np.inf).min(axis=1)
    part = max(window, size) * 8e12 / (trips * slowest)
    worst = int(part.argmin())
    if part[worst] >= 1:
        return ""
    source, target = (routes.tables.names[int(host)] for host in pairs[worst])
    return window_text(
        window,
        key,
        size,
        source,
        target,
        float(trips[worst]),
        float(slowest[worst]),
        f'{key} = "{{}} MiB"',
    )
