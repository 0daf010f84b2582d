# SPDX-License-Identifier: Apache-2.0
"""A NumPy array from one process into another: a step of `verbena demo`.

verbena.measure.worker calls the function in both processes.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from verbena.measure.side import Side, endpoint, take


def array(side: Side, seconds: float, count: int) -> dict[str, Any] | None:
    """A NumPy array of `count` floats, written into the other process, which verifies it."""
    del seconds
    expected = np.sqrt(np.arange(count, dtype="f8"))
    with endpoint(side, 8 * count) as end:
        here = end.mr.array("f8")
        here.fill(-1)
        their_pid = side.exchange(os.getpid())
        if not side.first:
            side.receive()  # now the array is there; this process did nothing for it
            side.send(bool(np.array_equal(here, expected)))
            return None
        source = end.pd.reg_mr(expected.data)
        start = time.perf_counter()
        end.qp.write(source, end.remote_addr, end.rkey)
        take(end.cq, 1)
        elapsed = time.perf_counter() - start
        side.send("written")
        pids = [os.getpid(), their_pid]
        return {"equal": side.receive(), "seconds": elapsed, "pids": pids}
