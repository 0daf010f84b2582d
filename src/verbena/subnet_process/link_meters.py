# SPDX-License-Identifier: Apache-2.0
"""The rates of links for data: where programs reserve time, and who has waited for it.

``PortPage`` calls this. A meter is one direction of a link that has a rate for data
(``NodePort.data_rate``), and lies in the page (struct vb_fabric_meter of port/fabric.h). What
programs say that they have waited becomes PortXmitWait of the ports where hardware counts it.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.manage.agents import NodePort

__all__ = ["METER_BYTES", "MOST_METERS", "LinkMeters", "LinkWaits", "waiting_ports"]

METER_BYTES = 64
MOST_METERS = 8  # of a flow, there and back each
RATE_AT = 8
_NUMBERS = struct.Struct(f"={2 * MOST_METERS}I")
NO_METERS = bytes(_NUMBERS.size)
MOST_KBPS = (1 << 32) - 1
WORD_BITS = 32  # a tick of PortXmitWait is the time of a word on the link
Links = list[tuple["NodePort", "NodePort"]]


class LinkMeters:
    """The meters of a page, which begin at ``base``; there is one for each port with a cable."""

    def __init__(self, page: memoryview, base: int, ports: Iterable[NodePort]) -> None:
        self._page, self._base = page, base
        self._number = {port: number for number, port in enumerate(ports, 1)}

    def numbers(self, links: Links, back_links: Links) -> bytes:
        """Return the numbers of the meters on both ways, the slowest if there are too many.

        Their rates are written to the page, too.
        """
        there, back = self._of(links), self._of(back_links)
        return _NUMBERS.pack(*there, *back) if there[0] or back[0] else NO_METERS

    def _of(self, links: Links) -> list[int]:
        limited = [(out.data_rate, self._number[out]) for out, _ in links if out.data_rate]
        limited.sort()
        del limited[MOST_METERS:]
        for rate, number in limited:
            at = (self._base + (number - 1) * METER_BYTES + RATE_AT) // 4
            self._page[at] = min(max(round(rate / 1000), 1), MOST_KBPS)
        return [number for _, number in limited] + [0] * (MOST_METERS - len(limited))


def waiting_ports(links: Links) -> list[NodePort]:
    """Return the ports that wait for credits while a way is as fast as its slowest link.

    These are the ones before that link, whose packets fill the buffers behind them, and that
    link's own if the port could send faster than it is allowed to.
    """
    rates = [out.data_rate for out, _ in links]
    slowest = min((rate for rate in rates if rate), default=0.0)
    if not slowest:
        return []
    at = rates.index(slowest)
    ports = [out for out, _ in links[:at]]
    return [*ports, links[at][0]] if links[at][0].is_throttled else ports


class LinkWaits:
    """Makes PortXmitWait of what flows have waited, at most the time that has passed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._settled = now, now()
        self._waits: dict[NodePort, int] = defaultdict(int)

    def add(self, links: Links, waited_ns: int) -> None:
        """A flow over these links has waited so long."""
        for port in waiting_ports(links):
            self._waits[port] += waited_ns

    def settle(self) -> None:
        """Count what was added since the last time. Several flows may have waited at a port."""
        now = self._now()
        passed, self._settled = now - self._settled, now
        for port, waited in self._waits.items():
            words = port.link_rate_bps / WORD_BITS  # in a second
            port.tally.count("xmit_wait", int(min(waited / 1e9, passed) * words))
        self._waits.clear()
