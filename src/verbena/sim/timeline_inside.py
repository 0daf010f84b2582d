# SPDX-License-Identifier: Apache-2.0
"""Trace events of hosts with an inside: rows of a host's cores, PCIe link, memory and wire.

``timeline`` calls ``inside_events`` for results whose [inside] has ``slices``. An arrow leads from
the doorbell of a flow's request to the first completion that a core takes for the flow after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena._trace_events import named_row
from verbena.sim.inside import COSTS, TLPS
from verbena.sim.scenario_inside import InsideReport

__all__ = ["inside_events"]

MICROSECOND = 1e6
FIRST_ROW = 10_000  # a host's flows have the rows below
LINKS = {252: "PCIe to memory", 253: "PCIe to the adapter", 254: "memory", 255: "wire"}
KINDS = {
    "post": "user",
    "doorbell": "user",
    "poll": "user",
    "interrupt": "interrupt",
    "wakeup": "system",
    "syscall": "system call",
}
DOORBELL, POLL = COSTS.index("doorbell"), COSTS.index("poll")


def inside_events(reports: Sequence[InsideReport]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all hosts. Times are in microseconds."""
    arrows = 0
    for report in reports:
        process = report.host + 1
        for row in np.unique(report.slices["row"]).tolist():
            yield from named_row(process, FIRST_ROW + row, LINKS.get(row, f"core {row}"))
        for one in report.slices:
            yield _slice(process, report.costs, one)
        for begin, end in _arrows(report.slices):
            yield _arrow("s", arrows, process, begin)
            yield {**_arrow("f", arrows, process, end), "bp": "e"}
            arrows += 1


def _slice(process: int, costs: Sequence[str], one: NDArray[np.void]) -> dict[str, Any]:
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
        "tid": FIRST_ROW + row,
        "args": {"flow": int(one["flow"]), "bytes": int(one["bytes"])},
    }


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
