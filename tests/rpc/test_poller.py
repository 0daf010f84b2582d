# SPDX-License-Identifier: Apache-2.0
"""The poller: completions are handled in order, whatever is called for one of them."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

from verbena.rpc.poller import Poller


class Batches:
    """A CQ that gives completions by batches; arming it shows one more."""

    def __init__(self, fd: int, *batches: list[int]) -> None:
        self.channel = SimpleNamespace(fd=fd, drain=lambda: 0)
        self._batches = list(batches)
        self.after_arming: list[list[int]] = []

    def call_when_closed(self, method: Any) -> None:
        """Nobody closes it."""

    def poll(self, most: int) -> list[Any]:
        wcs = self._batches.pop(0) if self._batches else []
        return [SimpleNamespace(qp_num=1, number=number) for number in wcs]

    def req_notify(self) -> None:
        self._batches += self.after_arming
        self.after_arming = []


class Target:
    """Polls, and arms the CQ, for each completion."""

    def __init__(self, poller: Poller) -> None:
        self.order: list[int] = []
        self._poller = poller

    def completed(self, wc: Any) -> None:
        assert self._poller.poll() == 0
        self._poller.arm()
        self.order.append(wc.number)

    def must_hear(self) -> bool:
        return False


def test_a_poll_within_a_completion_takes_no_later_one() -> None:
    async def main() -> tuple[int, list[int]]:
        reads, writes = os.pipe()
        cq: Any = Batches(reads, [1, 2, 3], [4])
        cq.after_arming = [[5], [6]]
        poller = Poller(cq, 0.0, False)
        target = poller.targets[1] = Target(poller)
        count = poller.poll()
        poller.close()
        os.close(reads)
        os.close(writes)
        return count, target.order

    # Arming within a poll has that poll look until nothing is left.
    assert asyncio.run(main()) == (6, [1, 2, 3, 4, 5, 6])
