# SPDX-License-Identifier: Apache-2.0
"""Rows of the comparison as text tables, and as data for JSON.

``verbena compare`` prints them. Times have their unit in each cell, sizes are bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from verbena.host.comparison.rows import Crossing, Row, Side
from verbena.host.comparison.settings import Setup
from verbena.host.comparison.ways import WAYS
from verbena.host.cost_list import (
    COMMANDS,
    HEAD,
    INSTRUCTIONS,
    TIMES,
    Use,
    disk_cost,
    link_uses,
    listed_cost,
)
from verbena.host.used_costs import UsedCosts, summed


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


def cost_table(rows: Sequence[Row], setup: Setup | None = None) -> list[list[str]]:
    """The costs that the rows have used, of ``verbena.host.cost_list``.

    ``setup`` is that of the rows. HostError for a charged name that the list does not have.
    """
    return [HEAD, *(use.cost.cells for use in _uses(rows, Setup() if setup is None else setup))]


def rows_costs(rows: Sequence[Row], setup: Setup | None = None) -> UsedCosts:
    """The same with how often. ``setup`` is that of the rows; HostError as ``cost_table``."""
    return summed(_uses(rows, Setup() if setup is None else setup))


def _uses(rows: Sequence[Row], of: Setup) -> list[Use]:
    sides = [side for row in rows for side in row.sides.values()]
    cycles = Counter[str]()
    for side in sides:
        cycles.update(side.charged)
    used = [_charged_use(name, cycles[name]) for name in sorted(cycles)]
    if instructions := sum(side.instructions for side in sides):
        used.insert(0, Use(listed_cost("disk_driver"), instructions, INSTRUCTIONS))
    media = [row for row in rows if "the disk's medium" in row.demands or row.there is None]
    if media:
        used.append(Use(disk_cost(of.disk_us * 1e6), len(media), COMMANDS))
    crossings = [one for side in sides for one in (side.to_device, side.to_memory)]
    transactions = sum(one.transactions for one in crossings)
    return [*used, *link_uses(of.pcie, transactions, sum(one.bytes for one in crossings))]


def _charged_use(name: str, cycles: int) -> Use:
    cost = listed_cost(name)
    return Use(cost, round(cycles / cost.each) if cost.each else None, TIMES)


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
