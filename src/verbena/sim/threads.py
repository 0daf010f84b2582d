# SPDX-License-Identifier: Apache-2.0
"""How many threads run a world that names no number. World calls this when it is made."""

from __future__ import annotations

import multiprocessing
import os

MOST = 8  # the threads of one world wait for each other in each window of time


def usual_threads() -> int:
    """Return fewer threads than there are idle processors, and at least 1.

    A process of a pool, as those of a sweep, has 1, since the pool uses the other processors.
    """
    if multiprocessing.parent_process() is not None:
        return 1
    idle = len(os.sched_getaffinity(0)) - os.getloadavg()[0]
    return max(1, min(MOST, int(idle) - 1))
