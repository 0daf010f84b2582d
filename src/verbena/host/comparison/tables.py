# SPDX-License-Identifier: Apache-2.0
"""Rows of the comparison as text tables, and as data for JSON.

``verbena compare`` prints them. Times have their unit in each cell, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verbena.host.comparison.rows import Crossing, Row, Side
from verbena.host.comparison.ways import WAYS
from verbena.host.costs import ORDER, Costs
from verbena.host.hca.driver import HcaCosts


def time_cell(ps: float) -> str:
    """A time in us, with two digits behind the point below 100 us."""
    return f"{ps / 1e6:,.2f} us" if ps < 1e8 else f"{ps / 1e6:,.0f} us"


def rate_cell(bits: float) -> str:
    """A rate in Gb/s with three digits."""
    return f"{bits / 1e9:.3g} Gb/s"


def speed_table(rows: Sequence[Row]) -> list[list[str]]:
    """Latency and rates of each way."""
    table = [["way", "latency", "one by one", "many at once", "limited by"]]
    for row in rows:
        name, most = row.limit
        table.append(
            [WAYS[row.way].title, time_cell(row.latency_ps), rate_cell(row.rate),
             rate_cell(most), name]
        )  # fmt: skip
    return table


def work_table(rows: Sequence[Row]) -> list[list[str]]:
    """What each side did."""
    table = [
        ["way", "side", "cycles", "copied", "system calls", "interrupts",
         "PCIe to device", "PCIe to memory"]
    ]  # fmt: skip
    for row in rows:
        for number, (name, side) in enumerate(row.sides.items()):
            way = WAYS[row.way].title if number == 0 else ""
            table.append([way, name, *_work(side)])
    return table


def _work(side: Side) -> list[str]:
    return [
        f"{side.cycles:,}",
        f"{side.copied:,} B",
        str(side.system_calls),
        str(side.interrupts),
        _crossing_cell(side.to_device),
        _crossing_cell(side.to_memory),
    ]


def _crossing_cell(crossing: Crossing) -> str:
    return f"{crossing.bytes:,} B in {crossing.transactions:,}"


def cost_table(rows: Sequence[Row]) -> list[list[str]]:
    """The costs that were charged, with the cycles of each and their source."""
    known = {cost.name: cost for cost in Costs().all()}
    used = {name for row in rows for side in row.sides.values() for name in side.charged}
    driver = HcaCosts()
    posting = {"post of a request": driver.post, "store to a doorbell": driver.doorbell,
               "poll of a completion": driver.poll_entry}  # fmt: skip
    table = [["charged cost", "cycles", "for each; source"]]
    for name in sorted(used):
        if name in known:
            cost = known[name]
            table.append([name, f"{cost.cycles:g}", f"{cost.per}; {cost.source}"])
        else:
            table.append([name, f"{posting.get(name, 0):g}", f"call; {ORDER}"])
    return table


def row_data(row: Row) -> dict[str, Any]:
    """A row as data: times in ps, rates in bits per second, sizes in bytes."""
    name, most = row.limit
    return {
        "way": row.way,
        "size": row.size,
        "latency_ps": row.latency_ps,
        "bits_per_second": row.rate,
        "most_bits_per_second": most,
        "limit": name,
        "occupied_ps": row.occupied,
        "sides": {name: _side_data(side) for name, side in row.sides.items()},
    }


def _side_data(side: Side) -> dict[str, Any]:
    crossings = {"to_device": side.to_device, "to_memory": side.to_memory}
    return {
        "cycles": side.cycles,
        "instructions": side.instructions,
        "charged_cycles": side.charged,
        "copied_bytes": side.copied,
        "system_calls": side.system_calls,
        "interrupts": side.interrupts,
        **{
            name: {"bytes": one.bytes, "transactions": one.transactions}
            for name, one in crossings.items()
        },
    }
