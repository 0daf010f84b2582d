# SPDX-License-Identifier: Apache-2.0
"""What becomes of queue pairs when the adapter fails or is unmapped, and when it is back.

Its DMA under way is dropped then. Every queue pair with a request, a packet or a completion under
way goes to the error state, as after a fatal error or a reset of the function; the others only
lose the packets that arrive meanwhile, and go on. When the adapter is back it first writes the
payload that was dropped, then the completions of what has failed, all of them errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena.host.hca.queues import Qp, QpState

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca


class Setback:
    """Of one adapter; ``resume`` goes on with the rings of a queue pair that has failed."""

    def __init__(self, hca: Hca, resume: Callable[[Qp], None]) -> None:
        self._hca, self._resume = hca, resume

    def lose(self) -> None:
        """The adapter's DMA under way was dropped."""
        hca = self._hca
        hca.transfers.cut()
        lost = hca.completer.qpns() | hca.landings.qpns
        for qp in hca.qps.values():
            ring = qp.ring
            is_fetching = ring.producer != ring.parsed
            if qp.number in lost or is_fetching or qp.requests or qp.arrivals or qp.answers:
                hca.end(qp)
            ring.fetched = ring.parsed
            ring.fetches.clear()
            ring.stream.clear()
            qp.answers.clear()

    def come_back(self) -> None:
        """The adapter works again: tells programs what has failed."""
        hca = self._hca
        if hca.is_dead or not hca.transfers.is_cut:
            return
        hca.transfers.is_cut = False
        hca.landings.again()
        hca.completer.again()
        for qp in hca.qps.values():
            if qp.state is QpState.ERROR:
                self._resume(qp)
        if hca.came_back is not None:
            hca.came_back()
