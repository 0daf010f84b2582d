# SPDX-License-Identifier: Apache-2.0
"""What a scenario needs of the machine, before it is made."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from verbena.sim._world import World
from verbena.sim.units import size_text

__all__ = ["available_memory", "memory_needed", "refusal"]

FLOW_BYTES = 304  # a flow as a row of the workload, of the world and of the result
SWITCH_PORT_BYTES = 640
LANE_BYTES = 128
LINE_BYTES = 12  # a lane's list for one input
PACKET_BYTES = 64
_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that this process can still have: of the machine, its control group, its ulimit."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        if most != resource.RLIM_INFINITY:
            found.append(most - pages * os.sysconf("SC_PAGE_SIZE"))
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        found += [] if limit == "max" else [int(limit) - used]
    except (OSError, ValueError, IndexError):
        pass
    return max(0, min(found))


def memory_needed(
    hosts: int, switches: int, radix: int, lanes: int, flows: float, active: float, packets: float
) -> int:
    """Bytes, about: ``active`` flows at once, with ``packets`` of each on their way."""
    each = World().bytes_each
    ports = switches * radix * (SWITCH_PORT_BYTES + lanes * (LANE_BYTES + radix * LINE_BYTES))
    tables = 2 * switches * hosts
    connections = active * (2 * each["qp"] + packets * PACKET_BYTES)
    return int(hosts * each["host"] + ports + tables + flows * FLOW_BYTES + connections)


def refusal(needed: int, allowed: int, flows: float) -> str | None:
    """A sentence, if it is too much."""
    if needed <= allowed:
        return None
    return (
        f"needs about {size_text(needed)} of memory, and {size_text(allowed)} are there: "
        f"{flows:.3g} flows are too many, or the network is too large"
    )
