# SPDX-License-Identifier: Apache-2.0
"""How much a scenario has to simulate, before it runs: for estimates, and for nothing exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Routes, Workload

__all__ = ["ideal_time", "packet_hops"]

SOME = 2000  # flows whose ways are looked at
ACK_BYTES = 1 << 12  # about one acknowledgement for so many bytes


def ideal_time(routes: Routes, work: Workload) -> int:
    """ps until the last byte has come, if hosts sent and received at the slowest link's rate."""
    flows, hosts = work.flows, routes.tables.host_count
    rate = float(routes.tables.links["rate"].min())
    size = flows["bytes"].astype(float)
    busiest = max(
        np.bincount(flows[end].astype(np.int64), size, hosts).max() for end in ("src", "dst")
    )
    first = np.ones(len(flows), bool)
    first[work.after[:, 1]] = False  # the start of others is a delay
    begin = float(flows["start"][first].max(initial=0))
    return int(begin + busiest * 8e12 / rate)


def packet_hops(routes: Routes, work: Workload, mtu: int, duration: int | None) -> float:
    """Packets of data and their acknowledgements, each as often as it crosses a link.

    With a ``duration`` in ps each host sends what its link carries in that time at most.
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
    """[flows]: links of each way; of many flows the mean of some."""
    flows = work.flows
    chosen = flows[:: max(1, len(flows) // SOME)]
    way = routes.links(chosen["src"].astype(np.int64), chosen["dst"].astype(np.int64))
    return np.full(len(flows), (way >= 0).sum(axis=1).mean())
