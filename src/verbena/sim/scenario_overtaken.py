# SPDX-License-Identifier: Apache-2.0
"""A note about packets that overtake each other over transports that rely on their order.

``Scenario`` asks before a run. A RoCE responder takes a packet ahead of the expected PSN as a sign
of loss: RC then repeats everything from the missing packet on, and UC drops the message.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Routes
from verbena.sim.scenario_switch import Switching
from verbena.sim.scenario_traffic import Traffic

__all__ = ["overtaken_note"]

PRICE = {
    "rc": "RC takes an overtaken packet for a lost one and sends all from it on again (go-back-N)",
    "uc": "UC takes an overtaken packet for a lost one, and its message is lost",
}


def overtaken_note(routes: Routes, switching: Switching, traffic: Traffic, mtu: int) -> str:
    """Return what it costs RC and UC that packets of a flow take different paths; otherwise "".

    Only one path between two hosts is examined. A single switch that balances by packet may be
    missed if switches before it balance by flow.
    """
    many = _of_many_packets(traffic, mtu)
    found = [one for one in PRICE if (chosen := many & (traffic.transport == one)).any()
             and _spread(routes, switching, traffic, chosen)]  # fmt: skip
    if not found:
        return ""
    key = 'balance = "packet"' if routes.groups is not None else 'per = "packet"'
    prices = "; ".join(PRICE[one] for one in found)
    return (
        f'with {key} packets of one flow overtake each other: {prices}; "flow" in place of '
        '"packet" keeps the order, and UD needs none'
    )


def _of_many_packets(traffic: Traffic, mtu: int) -> NDArray[np.bool_]:
    """Return which flows to hosts have several packets in flight at once."""
    single = (traffic.message > 0) & (traffic.message <= mtu) & (traffic.depth == 1)
    many: NDArray[np.bool_] = (traffic.work.flows["bytes"] > mtu) & ~single & (traffic.group < 0)
    return many


def _spread(
    routes: Routes, switching: Switching, traffic: Traffic, chosen: NDArray[np.bool_]
) -> bool:
    """Return whether a switch on the path of one of these flows chooses a port for each packet."""
    if routes.groups is None:
        return routes.detours is not None and routes.detours.per == "packet"
    by_packet = _by_packet(switching, routes.tables.switch_count)
    if not by_packet.any():
        return False
    flows = traffic.work.flows[chosen]
    ends = np.unique(np.stack([flows["src"], flows["dst"]], axis=1), axis=0).astype(np.int64)
    ends = np.concatenate([ends, ends[:, ::-1]])  # the data of a READ take the opposite path
    ways = routes.links(ends[:, 0], ends[:, 1])
    switch = routes.tables.links["dst"][ways].astype(np.int64) - routes.tables.host_count
    passed = (ways >= 0) & (switch >= 0)
    switch = np.where(passed, switch, 0)
    group = routes.groups.group[switch, ends[:, 1:]].astype(np.int64)
    choices = routes.groups.start[group + 1] - routes.groups.start[group]
    return bool((passed & by_packet[switch] & (choices > 1)).any())


def _by_packet(switching: Switching, count: int) -> NDArray[np.bool_]:
    """Return [S]: which switches balance by packet."""
    made = np.full(count, switching.settings.balance == "packet")
    for number, settings in switching.own.items():
        made[number] = settings.balance == "packet"
    return made
