# SPDX-License-Identifier: Apache-2.0
"""A group of collectives.sync belongs to one thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import pytest

from verbena.collectives import sync

ADDRESS = "127.0.0.1:7196"


def test_two_threads_call_at_the_same_time() -> None:
    with ThreadPoolExecutor(2) as pool:
        joining = [pool.submit(sync.join, rank, 2, ADDRESS, timeout=20) for rank in range(2)]
        first, second = (each.result() for each in joining)
        waiting = pool.submit(first.barrier)
        until = monotonic() + 10
        while not first._loop.is_running() and monotonic() < until:
            sleep(0.001)
        with pytest.raises(RuntimeError, match="belongs to one thread"):
            first.barrier()
        with pytest.raises(RuntimeError, match="belongs to one thread"):
            first.leave()
        second.barrier()
        waiting.result()
        leaving = [pool.submit(each.leave) for each in (first, second)]
        for each in leaving:
            each.result()
