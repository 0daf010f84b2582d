# SPDX-License-Identifier: Apache-2.0
"""What the flows of a scenario reserve, in comparison with the rates of the links on their paths.

``Scenario`` asks before a run. A flow that reserves more than the rate of a link on its path can
never start, which is an error. Flows that together reserve more at one time are a note: the run
refuses some of them, which may be what the scenario is about.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Routes
from verbena.fabrics.links import LinkNames
from verbena.sim.scenario_traffic import Traffic
from verbena.sim.units import time_text

__all__ = ["promises_note", "slow_link"]


def slow_link(routes: Routes, traffic: Traffic) -> tuple[int, str] | None:
    """Return the first flow that reserves more than a link of its path has, and the error's
    text."""
    flows = _with_one_way(routes, traffic)
    ways = _ways(routes, traffic, flows)
    rate = np.where(ways >= 0, routes.tables.links["rate"][ways], np.iinfo(np.int64).max)
    worst = rate.argmin(axis=1)
    slowest = np.take_along_axis(rate, worst[:, None], axis=1)[:, 0]
    bad = np.flatnonzero(traffic.reserve[flows] > slowest)
    if not len(bad):
        return None
    flow, link = int(flows[bad[0]]), int(ways[bad[0], worst[bad[0]]])
    return flow, (
        f"is {_gigabits(traffic.reserve[flow])}, more than link {_name(routes, link)} on the way "
        f"of a flow carries: {_gigabits(slowest[bad[0]])}"
    )


def promises_note(routes: Routes, traffic: Traffic, mtu: int, duration: int | None) -> str:
    """Return a note about a link on which more is reserved at one time than its rate; otherwise "".

    A flow keeps its reservation at least for the time that its bytes, less one packet, take at the
    reserved rate. Flows that wait for others are left out, since their start is not known.
    """
    flows = _with_one_way(routes, traffic)
    starts = traffic.work.flows["start"]
    known = ~np.isin(flows, traffic.work.after[:, 1])
    flows = flows[known & (starts[flows] < (np.inf if duration is None else duration))]
    if not len(flows):
        return ""
    ways, rate = _ways(routes, traffic, flows), traffic.reserve[flows]
    sent = np.maximum(traffic.work.flows["bytes"][flows].astype(float) - mtu, 0)
    begin = starts[flows].astype(np.int64)
    end = begin + np.maximum(sent * 8e12 / rate, 1).astype(np.int64)
    row, place = np.nonzero(ways >= 0)
    link = np.tile(ways[row, place], 2)
    when = np.concatenate([begin[row], end[row]])
    change = np.concatenate([rate[row], -rate[row]])
    order = np.lexsort((change, when, link))  # at one time, ends are before beginnings
    total = change[order].cumsum()  # it is 0 again after the last change of each link
    carries = routes.tables.links["rate"][link[order]].astype(np.int64)
    worst = int((total / carries).argmax())
    if total[worst] <= carries[worst]:
        return ""
    return (
        f"link {_name(routes, int(link[order][worst]))} carries {_gigabits(carries[worst])}, and "
        f"{_gigabits(total[worst])} of it are reserved at {time_text(int(when[order][worst]))}: "
        "some of these flows are refused when they start"
    )


def _with_one_way(routes: Routes, traffic: Traffic) -> NDArray[np.int64]:
    """Return the flows that reserve bandwidth; none if the routes allow several paths."""
    if routes.groups is not None or routes.detours is not None:
        return np.zeros(0, np.int64)
    return np.flatnonzero(traffic.reserve > 0)


def _ways(routes: Routes, traffic: Traffic, flows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return [n, longest]: the links of each flow's path, then -1."""
    if not len(flows):
        return np.full((0, 1), -1, np.int32)
    ends = traffic.work.flows[flows]
    return routes.links(ends["src"], ends["dst"])


def _name(routes: Routes, link: int) -> str:
    return LinkNames.of(routes.fabric).name(link)


def _gigabits(rate: int) -> str:
    return f"{int(rate) / 1e9:g} Gb/s"
