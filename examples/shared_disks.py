# SPDX-License-Identifier: Apache-2.0
"""Eight computers that read in bursts: each from a disk of its own, or all from shared disks.

The time of a read by DMA, and of one from another computer, are those of verbena.host.comparison.
A disk serves one read at a time; a read of the shared disks goes to the one that is free first.
"""

from __future__ import annotations

import random
from itertools import accumulate

from verbena.host.comparison import compare_ways
from verbena.host.comparison.tables import rows_costs

SIZE, COMPUTERS, BURSTS, BURST = 8192, 8, 2000, 8
PAUSE_US = 400.0  # between two bursts of a computer, on the average


def bursts(seed: int) -> list[tuple[float, int]]:
    """(when, which computer) of all bursts, in order of time, in microseconds."""
    rng = random.Random(seed)
    found = []
    for computer in range(COMPUTERS):
        pauses = (rng.expovariate(1 / PAUSE_US) for _ in range(BURSTS))
        found += [(at, computer) for at in accumulate(pauses)]
    return sorted(found)


def study(disks: int, busy_us: float, more_us: float, own: bool) -> str:
    """``busy_us`` is how long a read occupies a disk, ``more_us`` what the network adds."""
    free = [0.0] * disks
    took = []
    for at, computer in bursts(1):
        for _ in range(BURST):
            disk = computer if own else min(range(disks), key=free.__getitem__)
            free[disk] = max(free[disk], at) + busy_us
            took.append(free[disk] + more_us - at)
    took.sort()
    share = len(took) * busy_us / disks / max(free)
    middle, late = took[len(took) // 2], took[len(took) * 99 // 100]
    return f"half within {middle:5.1f} us, 99 % within {late:5.1f} us, disks busy {share:.0%}"


if __name__ == "__main__":
    rows = compare_ways(SIZE, ["dma", "remote-disk"])
    local, remote = (row.latency_ps / 1e6 for row in rows)
    print(f"{COMPUTERS} disks of their own:", study(COMPUTERS, local, 0.0, own=True))
    for disks in (8, 4, 3, 2):
        print(f"{disks} shared disks:      ", study(disks, local, remote - local, own=False))
    print(f"\nCosts that both reads used\n{rows_costs(rows).text(width=100)}")
