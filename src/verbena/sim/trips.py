# SPDX-License-Identifier: Apache-2.0
"""How long a packet and its acknowledgement are on their way at least, and what is too little.

Scenarios ask before they run. A timeout that is shorter than the round trip sends everything again,
or ends the connection, though nothing was lost; a window that holds less than the round trip's
bytes keeps a connection below the rate of its links.
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
    """[n]: ps from the first bit of ``size`` bytes to their acknowledgement, without any queue.

    It is no more than that: headers and the acknowledgement itself are not counted. A switch sends
    a packet on when it has all of it, or with ``cut_through`` at once.
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
    """What is wrong with a timeout, an exponent above 0, for RC between these hosts; or nothing."""
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
    """What a window of so many bytes costs one connection between these hosts; or nothing.

    ``size``: of a packet; ``key``: the setting that the window comes from.
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
