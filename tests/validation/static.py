# SPDX-License-Identifier: Apache-2.0
"""Static paths, each chosen once at random, as by a good hash of addresses."""

from __future__ import annotations

import numpy as np

from verbena.fabrics import Routes


def by_chance(routes: Routes, seed: int) -> Routes:
    """For each switch and destination one port of the equal-cost set of ``routes``."""
    random = np.random.default_rng(seed)
    lft = routes.lft.copy()
    for switch in range(routes.tables.switch_count):
        ports = routes.ports_of(switch)
        ways = (ports >= 0).sum(axis=1)
        chosen = ports[np.arange(len(ports)), random.integers(0, np.maximum(ways, 1))]
        lft[switch, routes.tables.lid] = np.where(ways > 0, chosen, routes.none)
    return Routes.from_lft(routes.fabric, lft)
