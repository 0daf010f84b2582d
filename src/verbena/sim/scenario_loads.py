# SPDX-License-Identifier: Apache-2.0
"""Notes about the load and the timers of a scenario's traffic, before it runs.

Each [[traffic]] with ``pattern = "poisson"`` has a load of at most 1, but several of them add up on
the links of their hosts. A TCP timeout that is longer than the run never expires in it.
"""

from __future__ import annotations

import numpy as np

from verbena.fabrics import Routes
from verbena.sim.scenario_patterns import Poisson
from verbena.sim.scenario_traffic import Traffic
from verbena.sim.units import time_text
from verbena.sim.world_settings import Tcp

__all__ = ["load_note", "timer_note"]


def load_note(routes: Routes, traffic: Traffic) -> str:
    """Return a note if the loads of Poisson traffic add up to more than 1 for a host; otherwise
    ""."""
    hosts = routes.tables.host_count
    rates = routes.tables.links["rate"][routes.tables.end_link[:hosts]].astype(float)
    found = [
        _Offer(name, table, hosts, float(rates[0]))
        for name, table in zip(traffic.names, traffic.tables, strict=True)
        if isinstance(table, Poisson)
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


class _Offer:
    """The load that a table offers to each host's link, and the time during which it does."""

    def __init__(self, name: str, table: Poisson, hosts: int, usual: float) -> None:
        self.name = name
        self.hosts = hosts if table.hosts is None else table.hosts
        self.begin = table.start
        self.end = self.begin + table.lasts
        line = usual if table.link is None else float(table.link.bits_per_second)
        self.rate = table.load * line


def timer_note(tcp: Tcp, uses_tcp: bool, duration: int | None) -> str:
    """Return a note if TCP's least timeout is not shorter than the run; otherwise ""."""
    if not uses_tcp or duration is None or tcp.least_rto < duration:
        return ""
    return (
        f"TCP waits {time_text(tcp.least_rto)} or more for an acknowledgement (tcp.least_rto), and "
        f"the run lasts {time_text(duration)}: a loss at the end of a flow or window is never "
        'repaired in it; data centres have about least_rto = "1 ms"'
    )
