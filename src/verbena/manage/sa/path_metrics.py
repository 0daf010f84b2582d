# SPDX-License-Identifier: Apache-2.0
"""MTU, rate and reachability of every path of a subnet, from its forwarding tables.

The SA's path queries ask ``PathMetrics``, which is made once for each heavy sweep and follows the
tables of all switches to all LIDs at once. A metric of a path is the least of its links.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import IbRate
from ..sm.discovered import DiscoveredSubnet, SubnetPort
from ..sm.discovered_fabric import port_rate
from ..sm.port_settings import link_mtu
from ..sm.sweep_routing import SubnetRoutes

__all__ = ["RATE_ORDER", "PathMetrics", "link_rate_code", "rate_place"]

# The codes of rates, slowest first; their numbers have another order.
RATE_ORDER: tuple[IbRate, ...] = tuple(
    sorted((rate for rate in IbRate if rate.gbps), key=lambda rate: rate.gbps)
)
_PLACE = {int(rate): place for place, rate in enumerate(RATE_ORDER)}
_NOMINAL = {
    "SDR": 2.5,
    "DDR": 5,
    "QDR": 10,
    "FDR10": 10,
    "FDR": 14,
    "EDR": 25,
    "HDR": 50,
    "NDR": 100,
    "XDR": 200,
}
UNREACHED = -1


def rate_place(code: int) -> int:
    """Return the place of a rate's code in ``RATE_ORDER``; -1 for a code without a rate."""
    return _PLACE.get(code, -1)


def link_rate_code(info: bytes) -> IbRate:
    """Return the code of a port's active rate, from PortInfo's bytes.

    A rate without a code of its own gets that of the fastest one that is not faster.
    """
    width, _, speed = port_rate(info).name.partition("x")
    gbps = int(width) * _NOMINAL[speed]
    return max((rate for rate in RATE_ORDER if rate.gbps <= gbps), key=lambda rate: rate.gbps)


class PathMetrics:
    """``mtu``, ``rate`` and ``hops`` [S, LIDs]: of the way from each switch to each LID.

    MTUs are codes, rates are places in ``RATE_ORDER``, hops count links; -1 where the tables lead
    nowhere. The link from a source to its first switch is not included.
    """

    def __init__(self, subnet: DiscoveredSubnet, routes: SubnetRoutes) -> None:
        self._subnet, self._routes = subnet, routes
        self._link_mtu, self._link_rate = self._links()
        self._own: dict[SubnetPort, tuple[int, int]] = {}

    def _links(self) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """[S, 256] twice: MTU and rate of the link at each port of each switch; port 0 has none."""
        rows = self._routes.rows
        mtu = np.full((len(rows), 256), UNREACHED, np.int16)
        rate = mtu.copy()
        codes: dict[bytes, int] = {}
        for node in self._subnet.switches:
            row = rows.get(node.guid)
            if row is None:
                continue
            mtu[row, 0], rate[row, 0] = 5, len(RATE_ORDER) - 1
            for port in node.ports.values():
                if port.number and port.peer is not None and port.info:
                    mtu[row, port.number] = link_mtu(port)
                    rate[row, port.number] = self._rate_of(port, codes)
        return mtu, rate

    @staticmethod
    def _rate_of(port: SubnetPort, codes: dict[bytes, int]) -> int:
        info = port.info
        key = bytes((info[31], info[35] >> 4, info[56] >> 5 & 3, info[62] >> 4))
        if key not in codes:
            codes[key] = rate_place(link_rate_code(info))
        return codes[key]

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int16]]:
        linear = self._routes.linear
        tables = self._routes.routes.tables
        rows = np.arange(len(linear))[:, None]
        wide = np.full((len(linear), 256), -1, np.int64)
        wide[:, : tables.neighbour.shape[1]] = tables.neighbour[:, :256]
        following = wide[rows, linear]
        mtu = self._link_mtu[rows, linear]
        rate = self._link_rate[rows, linear]
        hops = np.where(mtu >= 0, np.where(linear == 0, 0, 1), UNREACHED).astype(np.int16)
        open_ = (mtu >= 0) & (following >= 0)
        done = ~open_
        columns = np.broadcast_to(np.arange(linear.shape[1])[None, :], linear.shape)
        for _ in range(len(linear) + 1):
            ready = open_ & done[np.maximum(following, 0), columns]
            if not ready.any():
                break
            at, lid = np.nonzero(ready)
            onward = following[at, lid]
            bad = mtu[onward, lid] < 0
            for each in (mtu, rate):
                least = np.minimum(each[at, lid], each[onward, lid])
                each[at, lid] = np.where(bad, UNREACHED, least)
            hops[at, lid] = np.where(bad, UNREACHED, hops[onward, lid] + 1)
            done |= ready
            open_ &= ~ready
        for each in (mtu, rate, hops):
            each[open_] = UNREACHED  # a loop
        return mtu, rate, hops

    @property
    def mtu(self) -> NDArray[np.int16]:
        """[S, LIDs]: the code of the largest MTU, or -1."""
        return self._arrays[0]

    @property
    def rate(self) -> NDArray[np.int16]:
        """[S, LIDs]: the place in ``RATE_ORDER`` of the slowest link, or -1."""
        return self._arrays[1]

    @property
    def hops(self) -> NDArray[np.int16]:
        """[S, LIDs]: the number of links, or -1."""
        return self._arrays[2]

    def row_of(self, port: SubnetPort) -> int | None:
        """Return the row of the switch where packets of an end port begin; None without one."""
        node = port.node if port.node.is_switch else None
        if node is None and port.peer is not None and port.peer.node.is_switch:
            node = port.peer.node
        return None if node is None else self._routes.rows.get(node.guid)

    def of(self, source: SubnetPort, target: SubnetPort, dlid: int) -> tuple[int, int] | None:
        """Return MTU code and place of the rate of a path, or None if there is no path.

        To a port itself the way is inside of it: its own MTU and rate.
        """
        own = None if source.node.is_switch else self._of_link(source)
        if source is target or (source.peer is target and not source.node.is_switch):
            return own or (source.info[41] & 15, len(RATE_ORDER) - 1)
        row = self.row_of(source)
        if row is None or dlid >= self._routes.linear.shape[1]:
            return None
        mtu, rate = int(self.mtu[row, dlid]), int(self.rate[row, dlid])
        if mtu < 0:
            return None
        return (min(mtu, own[0]), min(rate, own[1])) if own else (mtu, rate)

    def to_lids(
        self, source: SubnetPort, lids: NDArray[np.int64]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """Return MTUs and rates of the paths to LIDs through the source's switch, -1 for none."""
        row, known = self.row_of(source), lids < self._routes.linear.shape[1]
        if row is None:
            return np.full(len(lids), UNREACHED, np.int16), np.full(len(lids), UNREACHED, np.int16)
        places = np.where(known, lids, 0)
        mtu, rate = (
            np.where(known, each[row, places], UNREACHED).astype(np.int16)
            for each in (self.mtu, self.rate)
        )
        if not source.node.is_switch:
            own = self._of_link(source)
            mtu, rate = np.minimum(mtu, own[0]), np.minimum(rate, own[1])
        return mtu, rate

    def from_rows(self, rows: NDArray[np.int64], lid: int) -> NDArray[np.bool_]:
        """Return whether a LID is reached from switches; row -1 is none."""
        if lid >= self._routes.linear.shape[1]:
            return np.zeros(len(rows), np.bool_)
        return np.asarray((rows >= 0) & (self.mtu[rows, lid] >= 0), np.bool_)

    @property
    def has_sl(self) -> bool:
        """Whether the routing engine gives paths SLs other than 0."""
        return self._routes.routes.sl is not None

    def _of_link(self, port: SubnetPort) -> tuple[int, int]:
        found = self._own.get(port)
        if found is None:
            found = link_mtu(port), rate_place(link_rate_code(port.info))
            self._own[port] = found
        return found

    def sl(self, source: SubnetPort, target: SubnetPort) -> int:
        """Return the SL on which the routing engine wants packets between two ports."""
        if self._routes.routes.sl is None or source is target:
            return 0
        row = self.row_of(source)
        if row is None:
            return 0
        if target.node.is_switch:
            target_row = self._routes.rows.get(target.node.guid)
            end = -1 if target_row is None else int(self._routes.switch_ends[target_row])
        else:
            end = self._routes.ends.get((target.node.guid, target.number), -1)
        return self._routes.sl(row, end)

    def walk(self, source: SubnetPort, dlid: int) -> list[tuple[SubnetPort, SubnetPort]] | None:
        """Return the links from an end port to a LID, each as two ports; None without a path."""
        found: list[tuple[SubnetPort, SubnetPort]] = []
        at: SubnetPort = source
        if not source.node.is_switch:
            if source.peer is None:
                return None
            found.append((source, source.peer))
            at = source.peer
        for _ in range(64):
            if not at.node.is_switch:
                return found if dlid in at.lids else None
            row: Any = self._routes.rows.get(at.node.guid)
            if row is None or dlid >= self._routes.linear.shape[1]:
                return None
            number = int(self._routes.linear[row, dlid])
            if number == 0:
                return found if dlid in at.node.ports[0].lids else None
            out = at.node.ports.get(number)
            if out is None or out.peer is None:
                return None
            found.append((out, out.peer))
            at = out.peer
        return None
