# SPDX-License-Identifier: Apache-2.0
"""What four workers of a Dask cluster are timed with, one function each; dask_worker.py calls them.

Each makes its data, waits for them, and returns how many seconds the rest took. The shuffles are of
1 GiB in sixteen pieces, all of which every worker needs a part of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

__all__ = ["LOADS"]

ROWS, COLUMNS = 16384, 8192  # of eight bytes
PIECES = 16
UNEVEN = 11585  # a square of 1 GiB: sixteen pieces of 724 rows leave one row
FIELDS = 8  # of a row of the table
REPLICATED = 512 << 20  # bytes


def _seconds(begun: Callable[[], Any]) -> float:
    from distributed import wait

    begin = time.perf_counter()
    wait(begun())
    return time.perf_counter() - begin


def rechunked(client: Any, method: str, rows: int, columns: int) -> float:
    """An array in pieces of whole rows becomes one in pieces of whole columns."""
    import dask.array
    from distributed import wait

    del client
    array = dask.array.ones((rows, columns), chunks=(rows // PIECES, columns)).persist()
    wait(array)
    chunks = (rows, columns // PIECES)
    return _seconds(lambda: array.rechunk(chunks, method=method).persist())


def sorted_by_key(client: Any) -> float:
    """A table's rows, in any order, go to the piece that their key belongs to."""
    import dask.dataframe
    from distributed import wait

    del client
    table = dask.dataframe.from_map(_rows, range(PIECES)).persist()
    wait(table)
    return _seconds(lambda: table.shuffle("key", shuffle_method="tasks").persist())


def _rows(seed: int) -> Any:
    import pandas

    numbers = np.random.default_rng(seed)
    count = ROWS * COLUMNS // PIECES // FIELDS
    fields = {f"field{field}": numbers.random(count) for field in range(1, FIELDS)}
    return pandas.DataFrame({"key": numbers.integers(0, 1 << 30, count)} | fields)


def replicated(client: Any) -> float:
    """Each worker fetches what the others have, and computes nothing."""
    from distributed import wait

    workers = list(client.scheduler_info()["workers"])
    arrays = [
        client.submit(np.ones, REPLICATED // 8 // 16, workers=workers[number % 4], pure=False)
        for number in range(16)
    ]
    wait(arrays)
    return _seconds(
        lambda: [client.submit(len, arrays, workers=worker, pure=False) for worker in workers]
    )


LOADS: dict[str, Callable[[Any], float]] = {
    "shuffle": partial(rechunked, method="tasks", rows=ROWS, columns=COLUMNS),
    "shuffle-p2p": partial(rechunked, method="p2p", rows=ROWS, columns=COLUMNS),
    "shuffle-uneven": partial(rechunked, method="tasks", rows=UNEVEN, columns=UNEVEN),
    "shuffle-table": sorted_by_key,
    "replicate": replicated,
}
