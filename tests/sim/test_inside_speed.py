# SPDX-License-Identifier: Apache-2.0
"""Hosts with an inside slow a simulation down by less than a factor of three."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import star
from verbena.sim import World

HOSTS = 17
LINK = {"generation": 5, "lanes": 16}
CACHES = {
    "pcie": LINK,
    "iommu": {"entries": 64},
    "hca": {"mtt": 2048},
    "interrupts": {"time": 8_000_000},
}
LARGE = CACHES | {"iommu": {"entries": 65_536}, "hca": {"mtt": 65_536}}
TRAFFIC: dict[str, dict[str, Any]] = {
    "256 KiB without messages": {"size": 1 << 18},
    "SENDs of 4 KiB": {"size": 1 << 20, "message": 4096, "operation": "send"},
    "WRITEs of 64 B, one at a time": {"size": 400 * 64, "message": 64, "depth": 1},
}


def seconds(inside: dict[str, Any] | None, traffic: dict[str, Any]) -> float:
    """Processor time of a run in which all hosts send to the last one."""
    world = World(framing="bare")
    star(world, HOSTS)
    for host in range(HOSTS if inside is not None else 0):
        world.inside(host, **(inside or {}))
    world.add_flows(np.arange(HOSTS - 1), HOSTS - 1, **traffic)
    begin = time.process_time()
    assert world.run() == "done"
    return time.process_time() - begin


@pytest.mark.parametrize("inside", [{"pcie": LINK}, CACHES, LARGE], ids=["link", "caches", "large"])
@pytest.mark.parametrize("traffic", TRAFFIC)
def test_an_inside_costs_less_than_three_times(traffic: str, inside: dict[str, Any]) -> None:
    """By the best of several runs, since others of the machine disturb some of them."""
    given = TRAFFIC[traffic]
    pairs = [(seconds(None, given), seconds(inside, given)) for _ in range(9)]
    without, with_it = (min(times) for times in zip(*pairs, strict=True))
    assert with_it < 3 * without
