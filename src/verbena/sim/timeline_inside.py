# SPDX-License-Identifier: Apache-2.0
"""Trace events of hosts with an inside: rows of a host's cores, PCIe link, memory and wire.

``timeline`` calls ``inside_events`` for results whose [inside] has ``slices``. An arrow leads from
the doorbell of a flow's request to the first completion that a core takes for the flow after it.
Between the slices of a core it is idle, or polls while a flow of it is under way. Slices of a link
may overlap, since each is recorded behind what it follows from; those that do have rows of their
own, as viewers show one slice of a row at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena._trace_events import named_row
from verbena.sim._world import STATES
from verbena.sim.inside import COSTS, NO_FLOW, TLPS
from verbena.sim.result import NEVER, REFUSED
from verbena.sim.scenario_inside import InsideReport

__all__ = ["inside_events"]

MICROSECOND = 1e6
FIRST_ROW = 10_000  # a host's flows have the rows below
ROWS = 256  # of slices; where some of them overlap, so many rows follow
LINKS = {252: "PCIe to memory", 253: "PCIe to the adapter", 254: "memory", 255: "wire"}
KINDS = {
    "post": "user",
    "doorbell": "user",
    "poll": "user",
    "interrupt": "interrupt",
    "wakeup": "system",
    "syscall": "system call",
}
NOT_BEGUN = (STATES.index("waiting"), REFUSED)
IDLE, POLLING = "idle", "poll of nothing"
DOORBELL, POLL = COSTS.index("doorbell"), COSTS.index("poll")


_Wait = tuple[int, str, int, int]  # a core, what it does, and from when to when


def inside_events(reports: Sequence[InsideReport], flows: NDArray[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all hosts. Times are in microseconds. ``flows``: those of the result."""
    arrows = 0
    for report in reports:
        if not len(report.slices):
            continue
        process = report.host + 1
        tracks = _tracks(report.slices)
        for track in sorted({*tracks.tolist(), *range(report.counters.cores)}):
            yield from named_row(process, FIRST_ROW + track, _name(track))
        for one, track in zip(report.slices, tracks.tolist(), strict=True):
            yield _slice(process, report.costs, one, track)
        for wait in _waits(report, flows):
            yield _waiting(process, *wait)
        for begin, end in _arrows(report.slices):
            yield _arrow("s", arrows, process, begin)
            yield {**_arrow("f", arrows, process, end), "bp": "e"}
            arrows += 1


def _tracks(slices: NDArray[np.void]) -> NDArray[np.intp]:
    """Return int [slices]: the row in which each is shown, in which no other overlaps it."""
    tracks = slices["row"].astype(np.intp)
    for link in LINKS:
        own = np.flatnonzero(slices["row"] == link)
        own = own[np.lexsort((slices["end"][own], slices["at"][own]))]
        free: list[int] = []  # when each of the rows is
        for place, at, end in zip(
            own, slices["at"][own].tolist(), slices["end"][own].tolist(), strict=True
        ):
            lane = next((lane for lane, over in enumerate(free) if over <= at), len(free))
            free[lane : lane + 1] = [end]
            tracks[place] += lane * ROWS
    return tracks


def _name(track: int) -> str:
    lane, row = divmod(track, ROWS)
    name = LINKS.get(row, f"core {row}")
    return f"{name}, {lane + 1}" if lane else name


def _slice(process: int, costs: Sequence[str], one: NDArray[np.void], track: int) -> dict[str, Any]:
    row, what, at, end = (int(one[name]) for name in ("row", "what", "at", "end"))
    is_core = row not in LINKS
    name = costs[what] if is_core else "packet" if LINKS[row] == "wire" else TLPS[what]
    return {
        "ph": "X",
        "name": name,
        "cat": KINDS.get(name, "program") if is_core else LINKS[row],
        "ts": at / MICROSECOND,
        "dur": (end - at) / MICROSECOND,
        "pid": process,
        "tid": FIRST_ROW + track,
        "args": _flow(int(one["flow"])) | {"bytes": int(one["bytes"])},
    }


def _flow(number: int) -> dict[str, int]:
    return {} if number == NO_FLOW else {"flow": number}


def _waits(report: InsideReport, flows: NDArray[Any]) -> list[_Wait]:
    """Return when cores are idle or poll without finding anything, in ps.

    Which of both is known where a host only sends: a receiver polls a little longer than the
    result says, and time that is not recorded is in the counters only. There it stays open.
    """
    cores = range(report.counters.cores)
    gaps = [(core, gap) for core in cores for gap in _gaps(report, core)]
    if not report.counters.spinning:
        return [(core, IDLE, *gap) for core, gap in gaps]
    made = [part for core in cores for part in _parts(report, core, flows)]
    polled = sum(end - at for _, name, at, end in made if name == POLLING)
    if polled == report.counters.spinning:
        return made
    return [(core, f"{IDLE} or {POLLING}", *gap) for core, gap in gaps]


def _parts(report: InsideReport, core: int, flows: NDArray[Any]) -> Iterator[_Wait]:
    """Yield the gaps of a core, cut where it begins or ends to poll."""
    polled = deque(_polled(report, core, flows))
    for at, end in _gaps(report, core):
        while polled and polled[0][1] <= at:
            polled.popleft()
        for begin, over in polled:
            if begin >= end:
                break
            if begin > at:
                yield core, IDLE, at, begin
            yield core, POLLING, max(at, begin), min(over, end)
            at = min(over, end)
        if at < end:
            yield core, IDLE, at, end


def _waiting(process: int, core: int, name: str, at: int, end: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": "user" if name == POLLING else "idle",
        "ts": at / MICROSECOND,
        "dur": (end - at) / MICROSECOND,
        "pid": process,
        "tid": FIRST_ROW + core,
        "args": {},
    }


def _gaps(report: InsideReport, core: int) -> Iterator[tuple[int, int]]:
    """Yield from when to when nothing of a core is recorded, in ps.

    Where a run had more slices than are recorded, the time behind a core's last one is left out,
    since nobody knows what it did.
    """
    elapsed = report.counters.elapsed
    own = report.slices[report.slices["row"] == core]
    free = 0
    for at, end in zip(own["at"].tolist(), own["end"].tolist(), strict=True):
        if free < min(at, elapsed):
            yield free, min(at, elapsed)
        free = max(free, end)
    if free < elapsed and _has_all_of_cores(report):
        yield free, elapsed


def _has_all_of_cores(report: InsideReport) -> bool:
    """Work that is not over at the end is recorded as a whole, and counted until then."""
    slices = report.slices[report.slices["row"] < min(LINKS)]
    return int(slices["end"].sum()) - int(slices["at"].sum()) >= report.counters.busy


def _polled(report: InsideReport, core: int, flows: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield from when to when flows of a core are under way, by time and without overlaps."""
    number = np.arange(len(flows))
    is_own = (flows["source"] == report.host) & (number % report.counters.cores == core)
    own = flows[is_own & ~np.isin(flows["state"], NOT_BEGUN)]
    own = own[np.argsort(own["start"], kind="stable")]
    finish = np.where(own["finish"] == NEVER, report.counters.elapsed, own["finish"])
    begin = over = 0
    for start, end in zip(own["start"].tolist(), finish.tolist(), strict=True):
        if start > over:
            if over > begin:
                yield begin, over
            begin = start
        over = max(over, end)
    if over > begin:
        yield begin, over


def _arrows(slices: NDArray[np.void]) -> Iterator[tuple[NDArray[np.void], NDArray[np.void]]]:
    """Yield pairs of a doorbell and the poll that finds its flow's next completion."""
    cores = slices[~np.isin(slices["row"], [*LINKS])]
    for flow in np.unique(cores["flow"]):
        own = cores[cores["flow"] == flow]
        own = own[np.argsort(own["at"], kind="stable")]
        bells, polls = own[own["what"] == DOORBELL], own[own["what"] == POLL]
        taken = 0
        for bell in bells:
            taken += int(np.searchsorted(polls["at"][taken:], bell["end"]))
            if taken == len(polls):
                break
            yield bell, polls[taken]
            taken += 1


def _arrow(phase: str, number: int, process: int, at: NDArray[np.void]) -> dict[str, Any]:
    return {
        "ph": phase,
        "id": number,
        "name": "request",
        "cat": "request",
        "ts": int(at["at"]) / MICROSECOND,
        "pid": process,
        "tid": FIRST_ROW + int(at["row"]),
    }
