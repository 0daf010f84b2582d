# SPDX-License-Identifier: Apache-2.0
"""Queues of a run at which some senders kept others out: a note of the result.

A queue pair's packets leave at the intervals of its link, to the picosecond. Where several such
flows come by links of one rate to a queue that drops, those whose packets come just after a place
was taken lose all of them, and the others none (Floyd and Jacobson, 1992). A scenario asks when a
run has ended. It is not known whose packets a queue dropped, so the flows are those whose way
leads there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Routes
from verbena.fabrics.links import LinkNames
from verbena.sim.scenario_traffic import Traffic

__all__ = ["lockout_note"]

MOST_LOOKED_AT = 16  # queues, those that dropped most first: each is a search among all flows


def lockout_note(
    routes: Routes,
    traffic: Traffic,
    flows: NDArray[np.void],
    dropped: NDArray[np.uint64],
    lossy: Collection[int],
    reacts: bool,
) -> str:
    """The queue that dropped most of those where flows may have kept each other out; or nothing.

    ``flows`` are those of the result; ``dropped`` [links]: packets for which there was no room.
    ``lossy``: classes that drop for lack of room. ``reacts``: whether the congestion control of RC
    slows down without a mark. ``routes`` are those of the whole run. Where they leave a choice of
    ways, the first and the last link of a flow stand for its way.
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
    worst = np.argsort(dropped, kind="stable")[::-1][:MOST_LOOKED_AT]
    return (int(link) for link in worst if dropped[link])


def _candidates(
    traffic: Traffic, flows: NDArray[np.void], lossy: Collection[int], reacts: bool
) -> NDArray[np.int64]:
    """Flows of queue pairs to a host that nothing has slowed down. TCP's have a jitter."""
    steady = (traffic.transport != "tcp") & (traffic.group < 0) & (flows["notices"] == 0)
    steady &= np.isin(flows["class"], list(lossy))
    if reacts:
        steady &= traffic.transport != "rc"
    return np.flatnonzero(steady)


def _ways(routes: Routes, traffic: Traffic, chosen: NDArray[np.int64]) -> NDArray[np.int32]:
    """[n, longest]: the links of each flow's data, then -1."""
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
    """How many flows were there at one time, by different links of one rate, in one class."""
    rate = routes.tables.links["rate"][inputs]
    for kind in np.unique(np.stack([rate, flows["class"]]), axis=1).T:
        same = (rate == kind[0]) & (flows["class"] == kind[1])
        if _overlap(inputs[same], flows[same]):
            return int(same.sum())
    return 0


def _overlap(inputs: NDArray[np.int32], flows: NDArray[np.void]) -> bool:
    """Does a flow of one input begin before the last of those before it, of another, ended?"""
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
