# SPDX-License-Identifier: Apache-2.0
"""Rough estimates of how much a scenario has to simulate, before it runs.

The command line's progress and the interval of recorded throughput use them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Routes, Workload

__all__ = ["ideal_time", "packet_hops"]

SOME = 2000  # flows whose paths are examined
ACK_BYTES = 1 << 12  # bytes per acknowledgement, about


def ideal_time(routes: Routes, work: Workload) -> int:
    """Return ps until the last byte has arrived, if hosts sent and received at the slowest link's
    rate."""
    flows, hosts = work.flows, routes.tables.host_count
    rate = float(routes.tables.links["rate"].min())
    size = flows["bytes"].astype(float)
    busiest = max(
        np.bincount(flows[end].astype(np.int64), size, hosts).max() for end in ("src", "dst")
    )
    first = np.ones(len(flows), bool)
    first[work.after[:, 1]] = False  # the start of a waiting flow is a delay
    begin = float(flows["start"][first].max(initial=0))
    return int(begin + busiest * 8e12 / rate)


def packet_hops(routes: Routes, work: Workload, mtu: int, duration: int | None) -> float:
    """Return how many times packets of data and acknowledgements cross a link.

    With a ``duration`` in ps, each host sends at most what its link carries in that time.
    """
    flows, tables = work.flows, routes.tables
    sent = flows["bytes"].astype(float)
    source = flows["src"].astype(np.int64)
    if duration is not None:
        each = np.bincount(source, sent, tables.host_count)
        rate = tables.links["rate"][tables.end_link[: tables.host_count]].astype(float)
        most = rate * duration / 8e12
        part = np.where(each > most, most / np.maximum(each, 1), 1.0)
        sent = sent * part[source]
    packets = np.ceil(sent / mtu) + np.ceil(sent / max(mtu, ACK_BYTES))
    return float((packets * _lengths(routes, work)).sum())


def _lengths(routes: Routes, work: Workload) -> NDArray[np.float64]:
    """Return [flows]: the number of links of each path. For many flows it is the mean of a
    sample."""
    flows = work.flows
    chosen = flows[:: max(1, len(flows) // SOME)]
    way = routes.links(chosen["src"].astype(np.int64), chosen["dst"].astype(np.int64))
    return np.full(len(flows), (way >= 0).sum(axis=1).mean())
