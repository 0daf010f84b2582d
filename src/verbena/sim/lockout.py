# SPDX-License-Identifier: Apache-2.0
"""A note about queues at which the packets of some senders were always dropped (lockout).

The packets of a queue pair leave at constant intervals, exact to the picosecond. If several such
flows arrive over links of one rate at a queue that drops, those whose packets arrive just after a
place was taken lose all of them, and the others none (Floyd and Jacobson, 1992). ``Scenario`` asks
after a run. A world counts drops by queue and not by flow, so the flows are those whose path leads
through the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Routes
from verbena.fabrics.links import LinkNames
from verbena.sim.scenario_traffic import Traffic

__all__ = ["lockout_note"]

QUEUES_MOST = 16  # queues that dropped most; each takes a search among all flows


def lockout_note(
    routes: Routes,
    traffic: Traffic,
    flows: NDArray[np.void],
    dropped: NDArray[np.uint64],
    lossy: Collection[int],
    reacts: bool,
) -> str:
    """Return a note about the queue that dropped most, if flows may have locked each other out
    there.

    ``flows``: those of the result. ``dropped`` [links]: packets that a full queue dropped.
    ``lossy``: classes that drop packets when a queue is full. ``reacts``: whether the congestion
    control of RC slows down without marks. ``routes``: those of the whole run. Where they allow
    several paths, only the first and the last link of a flow are considered. Returns "" if there is
    nothing to note.
    """
    if not dropped.any():
        return ""
    chosen = _candidates(traffic, flows, lossy, reacts)
    ways = _ways(routes, traffic, chosen)
    for link in _most_first(dropped):
        row, place = np.nonzero(ways[:, 1:] == link)
        if count := _together(routes, ways[row, place], flows[chosen[row]]):
            return _text(LinkNames.of(routes.fabric).name(link), int(dropped[link]), count)
    return ""


def _most_first(dropped: NDArray[np.uint64]) -> Iterator[int]:
    worst = np.argsort(dropped, kind="stable")[::-1][:QUEUES_MOST]
    return (int(link) for link in worst if dropped[link])


def _candidates(
    traffic: Traffic, flows: NDArray[np.void], lossy: Collection[int], reacts: bool
) -> NDArray[np.int64]:
    """Return flows of queue pairs to a host that were never slowed down. TCP flows have a
    jitter."""
    steady = (traffic.transport != "tcp") & (traffic.group < 0) & (flows["notices"] == 0)
    steady &= np.isin(flows["class"], list(lossy))
    if reacts:
        steady &= traffic.transport != "rc"
    return np.flatnonzero(steady)


def _ways(routes: Routes, traffic: Traffic, chosen: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return [n, longest]: the links of each flow's data path, then -1."""
    ends = traffic.work.flows[chosen]
    reads = traffic.operation[chosen] == "read"
    source = np.where(reads, ends["dst"], ends["src"]).astype(np.int64)
    target = np.where(reads, ends["src"], ends["dst"]).astype(np.int64)
    if not len(chosen):
        return np.full((0, 2), -1, np.int32)
    hosts = routes.tables.host_count
    pairs, back = np.unique(source * hosts + target, return_inverse=True)
    ways = routes.links(pairs // hosts, pairs % hosts)
    if routes.groups is not None or routes.detours is not None:
        last = (ways >= 0).sum(axis=1) - 1
        ways = np.stack([ways[:, 0], ways[np.arange(len(ways)), last]], axis=1)
    made: NDArray[np.int32] = ways[back]
    return made


def _together(routes: Routes, inputs: NDArray[np.int32], flows: NDArray[np.void]) -> int:
    """Return how many flows arrived at one time, over different links of one rate, in one class."""
    rate = routes.tables.links["rate"][inputs]
    for kind in np.unique(np.stack([rate, flows["class"]]), axis=1).T:
        same = (rate == kind[0]) & (flows["class"] == kind[1])
        if _overlap(inputs[same], flows[same]):
            return int(same.sum())
    return 0


def _overlap(inputs: NDArray[np.int32], flows: NDArray[np.void]) -> bool:
    """Return whether a flow of one input begins before an earlier flow of another input has
    ended."""
    order = np.argsort(flows["start"], kind="stable")
    inputs, begin, end = inputs[order], flows["start"][order], flows["finish"][order]
    together = begin[1:] < np.maximum.accumulate(end)[:-1]
    return bool((together & (inputs[1:] != inputs[:-1])).any())


def _text(link: str, dropped: int, flows: int) -> str:
    return (
        f"{link} dropped {dropped} packets of a full queue, and {flows} flows of queue pairs came "
        "there by links of one rate: senders in phase keep others out, so how these flows shared "
        "the link says nothing; congestion control that marks before the queue is full, pauses, "
        "credits, or TCP, whose flows have a jitter, share it"
    )
