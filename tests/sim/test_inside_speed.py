# SPDX-License-Identifier: Apache-2.0
"""Hosts with an inside slow a simulation down by less than a factor of three."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from tests.sim.fabrics import star
from verbena.sim import World

HOSTS = 17


def seconds(inside: dict[str, Any] | None) -> float:
    """Processor time of a run in which all hosts send 256 KiB to the last one."""
    world = World(framing="bare")
    star(world, HOSTS)
    for host in range(HOSTS if inside is not None else 0):
        world.inside(host, **(inside or {}))
    world.add_flows(np.arange(HOSTS - 1), HOSTS - 1, 1 << 18)
    begin = time.process_time()
    assert world.run() == "done"
    return time.process_time() - begin


def test_an_inside_costs_less_than_three_times() -> None:
    link = {"generation": 5, "lanes": 16}
    caches = {
        "pcie": link,
        "iommu": {"entries": 64},
        "hca": {"mtt": 2048},
        "interrupts": {"time": 8_000_000},
    }
    for inside in ({"pcie": link}, caches):
        pairs = [(seconds(None), seconds(inside)) for _ in range(7)]
        without, with_it = (min(times) for times in zip(*pairs, strict=True))
        assert with_it < 3 * without + 0.002
