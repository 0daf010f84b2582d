# SPDX-License-Identifier: Apache-2.0
"""A worker that is killed in the middle of a computation: the cluster goes on without it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="no package distributed; the extra dask has it")

from distributed import Client, LocalCluster

TASKS, ITEMS = 40, 20_000


def slow(number: int) -> Any:
    time.sleep(0.05)
    return np.full(ITEMS, number)


def total(parts: list[Any]) -> int:
    return int(np.sum(parts))


def test_a_worker_that_is_killed_in_the_middle_of_a_computation() -> None:
    """What it had computed is computed again, and the result is right; a new worker comes."""
    with (
        LocalCluster(
            protocol="verbena://", n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        parts = client.map(slow, range(TASKS), pure=False)
        result = client.submit(total, parts)
        killed = next(iter(pids))
        while not client.has_what()[killed]:  # so that something is lost
            time.sleep(0.02)
        os.kill(pids[killed], signal.SIGKILL)
        assert result.result(timeout=60) == ITEMS * sum(range(TASKS))
        client.wait_for_workers(2, timeout=30)
        assert set(client.run(os.getpid).values()) - set(pids.values())
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
