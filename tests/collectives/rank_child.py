# SPDX-License-Identifier: Apache-2.0
"""A rank for the tests: ``rank_child.py WHAT`` joins by the environment, and prints how it ends."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena.collectives import sync


def main(what: str) -> None:
    faulthandler.dump_traceback_later(50)  # before the test gives up: where it hangs
    with sync.join(timeout=30) as group:
        mine = np.full(50_000, group.rank + 1.0)
        group.barrier()
        if what == "sum":
            for _ in range(5):
                assert group.all_reduce(mine)[0] == group.size * (group.size + 1) / 2
            group.all_to_all(np.zeros((group.size, 9000)))
            sys.stdout.write(f"rank {group.rank} of {group.size} is right\n")
        elif what == "die":
            try:
                reduce_until_one_dies(group, mine)
            except OSError as error:
                sys.stdout.write(f"{group.rank}: {type(error).__name__} {error.rank}\n")
        elif what == "die, uncaught":
            reduce_until_one_dies(group, mine)


def reduce_until_one_dies(group: sync.SyncGroup, mine: NDArray[Any]) -> None:
    for count in range(10_000):
        if group.rank == 2 and count == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        group.all_reduce(mine, algorithm="ring" if count % 2 else None)


if __name__ == "__main__":
    main(sys.argv[1])
