# SPDX-License-Identifier: Apache-2.0
"""How much memory a scenario will need, and how much this machine has.

``Scenario`` and ``sweep`` ask before they allocate anything, so that a scenario that is too large
is an error with a key, and not a process that the kernel kills. The estimates are rough.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from verbena.sim._world import World
from verbena.sim.units import size_text

__all__ = ["available_memory", "memory_needed", "refusal"]

# Bytes of memory, as measured.
FLOW_BYTES = 304  # of a flow, in the workload, the world and the result
SWITCH_PORT_BYTES = 640
LANE_BYTES = 128
LINE_BYTES = 12  # of a lane's list for one input
PACKET_BYTES = 64
_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return how many bytes this process may still allocate.

    The least of three: the machine's available memory, the limit of the control group, and the
    ulimit.
    """
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
    """Return about how many bytes a run needs.

    ``flows`` in all, of which ``active`` run at once with ``packets`` packets each in flight.
    """
    each = World().bytes_each
    ports = switches * radix * (SWITCH_PORT_BYTES + lanes * (LANE_BYTES + radix * LINE_BYTES))
    tables = 2 * switches * hosts
    connections = active * (2 * each["qp"] + packets * PACKET_BYTES)
    return int(hosts * each["host"] + ports + tables + flows * FLOW_BYTES + connections)


def refusal(needed: int, allowed: int, flows: float) -> str | None:
    """Return a sentence if more is needed than allowed, or None."""
    if needed <= allowed:
        return None
    return (
        f"needs about {size_text(needed)} of memory, and {size_text(allowed)} are there: "
        f"{flows:.3g} flows are too many, or the network is too large"
    )
