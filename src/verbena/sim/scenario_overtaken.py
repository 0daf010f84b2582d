# SPDX-License-Identifier: Apache-2.0
"""Flows of a scenario whose packets may overtake each other, over transports that need their order.

A scenario asks before it runs. A RoCE responder takes a packet that comes early for a sign that
the one before it was lost: of RC all is sent again from there on, of UC the message is lost.
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
    """What it costs RC and UC that packets of one flow take different ways; or nothing.

    Of each two hosts one way is looked at, so a switch that alone balances by packet may be missed
    where others, before it, balance by flow.
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
    """Flows that have several packets under way at once, to hosts."""
    single = (traffic.message > 0) & (traffic.message <= mtu) & (traffic.depth == 1)
    many: NDArray[np.bool_] = (traffic.work.flows["bytes"] > mtu) & ~single & (traffic.group < 0)
    return many


def _spread(
    routes: Routes, switching: Switching, traffic: Traffic, chosen: NDArray[np.bool_]
) -> bool:
    """Does a switch choose anew for each packet, on the way of one of these flows?"""
    if routes.groups is None:
        return routes.detours is not None and routes.detours.per == "packet"
    by_packet = _by_packet(switching, routes.tables.switch_count)
    if not by_packet.any():
        return False
    flows = traffic.work.flows[chosen]
    ends = np.unique(np.stack([flows["src"], flows["dst"]], axis=1), axis=0).astype(np.int64)
    ends = np.concatenate([ends, ends[:, ::-1]])  # a READ's data come the other way
    ways = routes.links(ends[:, 0], ends[:, 1])
    switch = routes.tables.links["dst"][ways].astype(np.int64) - routes.tables.host_count
    passed = (ways >= 0) & (switch >= 0)
    switch = np.where(passed, switch, 0)
    group = routes.groups.group[switch, ends[:, 1:]].astype(np.int64)
    choices = routes.groups.start[group + 1] - routes.groups.start[group]
    return bool((passed & by_packet[switch] & (choices > 1)).any())


def _by_packet(switching: Switching, count: int) -> NDArray[np.bool_]:
    """[S]: the switches that balance by packet."""
    made = np.full(count, switching.settings.balance == "packet")
    for number, settings in switching.own.items():
        made[number] = settings.balance == "packet"
    return made
