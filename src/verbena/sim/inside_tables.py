# SPDX-License-Identifier: Apache-2.0
"""What the insides of hosts did as tables: for Parquet files, and as columns of a sweep.

``parquet`` writes ``inside_columns`` and ``slice_columns``; ``parquet_reports`` keeps what
``packed_insides`` returns in the metadata, from which ``unpacked_insides`` makes the same reports.
``sweeps.measures`` adds ``host_measures``. Times are in ps, except in a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verbena.sim._world import SLICE_ROW
from verbena.sim.inside import TLPS, InsideCounters, LinkCounters
from verbena.sim.scenario_inside import InsideReport
from verbena.sim.timeline_inside import LINKS

if TYPE_CHECKING:
    from verbena.sim.result import ScenarioResult

__all__ = [
    "HOST_UNITS", "INSIDE_UNITS", "host_measures", "inside_columns", "packed_insides",
    "slice_columns", "unpacked_insides",
]  # fmt: skip

WAYS = ("up", "down")  # of a PCIe link: to memory and processor, to the adapter
COUNTED = ("requests", "doorbells", "blueflames", "inlined", "completions", "interrupts", "merged")
HOST_UNITS = {  # of the columns of a sweep, behind the host's name and a point
    **dict.fromkeys(("cores_busy", "cores_polling", "pcie_up_busy", "pcie_down_busy"), "1"),
    **dict.fromkeys(("pcie_up", "pcie_down"), "B"),
    **dict.fromkeys(("interrupts", "merged"), "interrupts"),
}
INSIDE_UNITS = {
    **dict.fromkeys(("elapsed", "busy", "polling", "idle", "at", "end"), "ps"),
    **dict.fromkeys(("up_busy", "down_busy"), "ps"),
    **dict.fromkeys(("up_bytes", "down_bytes", "fetched", "placed", "bytes"), "B"),
}


def host_measures(result: ScenarioResult) -> dict[str, float]:
    """Return what a sweep keeps of each host that has an inside, as "h0.cores_busy".

    ``cores_busy`` and ``cores_polling`` are parts of the time of all its cores, ``pcie_up_busy``
    and ``pcie_down_busy`` parts of the elapsed time; ``pcie_up`` and ``pcie_down`` are bytes.
    """
    found: dict[str, float] = {}
    for report in result.insides:
        seen, name = report.counters, result.nodes[report.host]
        time = max(1, seen.elapsed)
        found |= {
            f"{name}.cores_busy": seen.busy / time / seen.cores,
            f"{name}.cores_polling": seen.spinning / time / seen.cores,
            f"{name}.pcie_up": seen.up.bytes,
            f"{name}.pcie_down": seen.down.bytes,
            f"{name}.pcie_up_busy": seen.up.busy / time,
            f"{name}.pcie_down_busy": seen.down.busy / time,
            f"{name}.interrupts": seen.interrupts,
            f"{name}.merged": seen.merged,
        }
    return found


def inside_columns(insides: Sequence[InsideReport], nodes: Sequence[str]) -> dict[str, Any]:
    """Return a row for each host: its cores, both directions of its link, interrupts, caches.

    ``up_write`` and the like count transactions, ``cycles_post`` and the like cycles of all cores.
    """
    seen = [report.counters for report in insides]
    columns: dict[str, Any] = {
        "host": [nodes[report.host] for report in insides],
        **{name: [getattr(one, name) for one in seen] for name in ("elapsed", "cores", "busy")},
        "polling": [one.spinning for one in seen],
        "idle": [one.idle for one in seen],
    }
    for way in WAYS:
        links = [getattr(one, way) for one in seen]
        columns[f"{way}_bytes"] = [link.bytes for link in links]
        columns[f"{way}_busy"] = [link.busy for link in links]
        for tlp in TLPS:
            columns[f"{way}_{tlp}"] = [link.tlps[tlp][0] for link in links]
    for name in (*COUNTED, "fetched", "placed"):
        columns[name] = [getattr(one, name) for one in seen]
    for name in ("iotlb", "mtt"):
        for place, what in enumerate(("hits", "misses")):
            columns[f"{name}_{what}"] = [getattr(one, name)[place] for one in seen]
    for cost in dict.fromkeys(name for one in seen for name in one.cycles):
        columns[f"cycles_{cost}"] = [one.cycles.get(cost, 0) for one in seen]
    return columns


def slice_columns(insides: Sequence[InsideReport], nodes: Sequence[str]) -> dict[str, Any]:
    """Return a row for each slice of time: its host, the core or link, and what that did."""
    rows = [(report, one) for report in insides for one in report.slices]
    columns: dict[str, Any] = {
        "host": [nodes[report.host] for report, _ in rows],
        "row": [LINKS.get(int(one["row"]), f"core {one['row']}") for _, one in rows],
        "what": [_what(report, int(one["row"]), int(one["what"])) for report, one in rows],
    }
    slices = _all_slices(insides)
    return columns | {name: slices[name].copy() for name in ("at", "end", "flow", "bytes")}


def _what(report: InsideReport, row: int, what: int) -> str:
    if row not in LINKS:
        return report.costs[what]
    return "packet" if LINKS[row] == "wire" else TLPS[what]


def _all_slices(insides: Sequence[InsideReport]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, SLICE_ROW), *(report.slices for report in insides)])


# ---- as metadata ---------------------------------------------------------------------------------


def packed_insides(insides: Sequence[InsideReport]) -> list[dict[str, Any]]:
    """Return the reports, of values that JSON has; of slices how many there are."""
    return [
        {
            "host": report.host,
            "counters": asdict(report.counters),
            "costs": list(report.costs),
            "slices": len(report.slices),
        }
        for report in insides
    ]


def unpacked_insides(
    made: Sequence[dict[str, Any]], slices: dict[str, Any]
) -> tuple[InsideReport, ...]:
    """Return the reports; ``slices`` are the columns that ``slice_columns`` made, or none."""
    found, at = [], 0
    numbers = {name: number for number, name in LINKS.items()}
    for one in made:
        count = one["slices"]
        own = np.zeros(count, SLICE_ROW)
        known = {name: number for number, name in enumerate(one["costs"])}
        for place in range(count):
            row, what = slices["row"][at + place], slices["what"][at + place]
            own["row"][place] = numbers[row] if row in numbers else int(row.removeprefix("core "))
            if row not in numbers:
                own["what"][place] = known[what]
            elif row != "wire":
                own["what"][place] = TLPS.index(what)
        for name in ("at", "end", "flow", "bytes") if count else ():
            own[name] = slices[name][at : at + count]
        found.append(
            InsideReport(one["host"], _counters(one["counters"]), own, tuple(one["costs"]))
        )
        at += count
    return tuple(found)


def _counters(of: dict[str, Any]) -> InsideCounters:
    links = {
        way: LinkCounters(
            of[way]["bytes"],
            of[way]["busy"],
            {name: (many[0], many[1]) for name, many in of[way]["tlps"].items()},
        )
        for way in WAYS
    }
    names = ("iotlb", "mtt", *(["headers"] if "headers" in of else []))
    pairs = {name: (of[name][0], of[name][1]) for name in names}
    return InsideCounters(**{**of, **links, **pairs})
