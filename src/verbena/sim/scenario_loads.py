# SPDX-License-Identifier: Apache-2.0
"""What is remarkable about the load and the timers of a scenario's traffic, before it runs.

Each [[traffic]] with ``pattern = "poisson"`` has a load of 1 at most, but several of them add up on
the links of their hosts. A timeout of TCP that is longer than the run never expires in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verbena import fabrics
from verbena.fabrics import Routes
from verbena.sim import kinds
from verbena.sim.units import time_text

__all__ = ["load_note", "timer_note"]

LEAST_RTO = 200 * 10**9  # ps: World's default


def load_note(routes: Routes, names: Sequence[str], tables: Sequence[Mapping[str, Any]]) -> str:
    """The sum of the loads of Poisson traffic, where it is above 1 for some host; or nothing.

    ``tables`` are the [[traffic]], which have been checked.
    """
    hosts = routes.tables.host_count
    rates = routes.tables.links["rate"][routes.tables.end_link[:hosts]].astype(float)
    found = [
        _Poisson(name, table, hosts, float(rates[0]))
        for name, table in zip(names, tables, strict=True)
        if table["pattern"] == "poisson"
    ]
    for at in sorted({one.begin for one in found}):
        now = [one for one in found if one.begin <= at < one.end]
        load = np.sum([one.rate * (np.arange(hosts) < one.hosts) for one in now], axis=0) / rates
        worst = int(load.argmax())
        if load[worst] > 1 + 1e-9:
            who = " and ".join(one.name for one in now if worst < one.hosts)
            return (
                f"{who} offer {load[worst]:.3g} of what the link of "
                f"{routes.tables.names[worst]} carries, {rates[worst] / 1e9:g} Gb/s: queues grow "
                "and flows take longer for as long as that lasts"
            )
    return ""


class _Poisson:
    """One of the tables: what it offers to each host's link, and when."""

    def __init__(self, name: str, table: Mapping[str, Any], hosts: int, usual: float) -> None:
        self.name = name
        self.hosts = int(table.get("hosts", hosts))
        self.begin = kinds.time(table.get("start", 0))
        self.end = self.begin + kinds.time(table["lasts"])
        link = table.get("link")
        line = usual if link is None else float(fabrics.rate(link).bits_per_second)
        self.rate = float(table["load"]) * line


def timer_note(adapter: Mapping[str, Any], uses_tcp: bool, duration: int | None) -> str:
    """TCP's least timeout, where it is as long as the run or longer; or nothing."""
    least = int(adapter.get("tcp", {}).get("least_rto", LEAST_RTO))
    if not uses_tcp or duration is None or least < duration:
        return ""
    return (
        f"TCP waits {time_text(least)} or more for an acknowledgement (tcp.least_rto), and the run "
        f"lasts {time_text(duration)}: a loss at the end of a flow or window is never repaired in "
        'it; data centres have about least_rto = "1 ms"'
    )
